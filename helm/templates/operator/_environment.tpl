{{- define "rolloutfleet.operatorEnv" -}}
{{- include "rolloutfleet.redisEnv" . }}
- name: ROLLOUTFLEET_FLEET
  value: {{ include "rolloutfleet.fleet" . | quote }}
- name: ROLLOUTFLEET_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: ROLLOUTFLEET_DEPLOYMENTS
  value: {{ include "rolloutfleet.workerNames" . | quote }}
{{- with include "rolloutfleet.setNames" . }}
- name: ROLLOUTFLEET_LEADER_WORKER_SETS
  value: {{ . | quote }}
{{- end }}
- name: ROLLOUTFLEET_SCALING_OWNER
  value: {{ .Values.scaling.owner | quote }}
- name: ROLLOUTFLEET_WORKER_REPLICAS
  value: {{ include "rolloutfleet.workerReplicas" . | quote }}
- name: ROLLOUTFLEET_MIN_WORKERS
  value: {{ int .Values.scaling.minWorkers | quote }}
- name: ROLLOUTFLEET_MAX_WORKERS
  value: {{ int .Values.scaling.maxWorkers | quote }}
- name: ROLLOUTFLEET_COOLDOWN_SECONDS
  value: {{ int .Values.scaling.cooldownSeconds | quote }}
- name: ROLLOUTFLEET_DRAIN_SECONDS
  value: {{ int .Values.drain.seconds | quote }}
- name: ROLLOUTFLEET_MAX_UNAVAILABLE
  value: {{ int .Values.worker.maxUnavailable | quote }}
- name: ROLLOUTFLEET_LEASE_NAME
  value: {{ include "rolloutfleet.fullname" . }}-operator
- name: ROLLOUTFLEET_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: ROLLOUTFLEET_PROBE_PORT
  value: "8081"
{{- with .Values.operator.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Comma separated, in the order of the pools' names: their Deployments, and how many workers each is to have. */}}
{{- define "rolloutfleet.workerNames" -}}
{{- $names := list -}}
{{- range $pool := include "rolloutfleet.pools" . | fromJson | keys | sortAlpha -}}
{{- $names = append $names (include "rolloutfleet.workerName" (list $ $pool)) -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/* Of these, the LeaderWorkerSets. */}}
{{- define "rolloutfleet.setNames" -}}
{{- $names := list -}}
{{- $pools := include "rolloutfleet.pools" . | fromJson -}}
{{- range $pool := keys $pools | sortAlpha -}}
{{- if gt (int (get $pools $pool).engine.nodes) 1 -}}
{{- $names = append $names (include "rolloutfleet.workerName" (list $ $pool)) -}}
{{- end -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{- define "rolloutfleet.workerReplicas" -}}
{{- $pools := include "rolloutfleet.pools" . | fromJson -}}
{{- $numbers := list -}}
{{- range $pool := keys $pools | sortAlpha -}}
{{- $numbers = append $numbers (get $pools $pool).worker.replicas -}}
{{- end -}}
{{- join "," $numbers -}}
{{- end -}}

{{/* "yes" where an engine spans several pods. */}}
{{- define "rolloutfleet.spans" -}}
{{- range $pool, $its := include "rolloutfleet.pools" . | fromJson -}}
{{- if gt (int $its.engine.nodes) 1 }}yes{{ end -}}
{{- end -}}
{{- end -}}
