{{/* Spec of a worker's pod: {root, pool, worker, engine}. */}}
{{- define "rolloutfleet.workerPodSpec" -}}
{{- $root := .root -}}
automountServiceAccountToken: false
{{- with .worker.serviceAccountName }}
serviceAccountName: {{ . | quote }}
{{- end }}
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "rolloutfleet.graceSeconds" $root }}
securityContext:
  {{- include "rolloutfleet.podSecurity" 10001 | nindent 2 }}
{{- include "rolloutfleet.pullSecrets" $root }}
{{- include "rolloutfleet.placement" .worker.pod | nindent 0 }}
{{- if ne .engine.mode "external" }}
# A native sidecar: it starts before the worker and ends after it, so that a rollout of several turns has its engine
# until the last one.
initContainers:
  {{- include "rolloutfleet.engineContainer" (merge (dict "sidecar" true) .) | nindent 2 }}
{{- end }}
containers:
  {{- include "rolloutfleet.workerContainer" . | nindent 2 }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: {{ .worker.tmpSize | quote }}}
  {{- include "rolloutfleet.redisVolumes" $root | nindent 2 }}
  {{- include "rolloutfleet.engineVolumes" . | nindent 2 }}
  {{- with .worker.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "rolloutfleet.workerPodMetadata" -}}
{{- include "rolloutfleet.podMetadata" (list .root "worker" (include "rolloutfleet.overlay" (list .worker.pod (dict "labels" (dict "rolloutfleet/pool" (.pool | default "default")))) | fromJson)) }}
{{- end -}}
