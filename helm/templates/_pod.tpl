{{/* The restricted pod security standard, but for what each container says of itself. */}}
{{- define "rolloutfleet.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "rolloutfleet.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* (list $ component pod): labels and annotations of a pod; what finds it can't be replaced. */}}
{{- define "rolloutfleet.podMetadata" -}}
labels:
  {{- include "rolloutfleet.selector" (list (index . 0) (index . 1)) | nindent 2 }}
  {{- with omit (dig "labels" dict (index . 2)) "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with dig "annotations" dict (index . 2) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* All of `pod` that belongs into the spec. */}}
{{- define "rolloutfleet.placement" -}}
{{- with omit . "labels" "annotations" }}
{{- toYaml . }}
{{- end }}
{{- end -}}

{{/* Where Redis is, for every process of ours. */}}
{{- define "rolloutfleet.redisEnv" -}}
{{- if eq .Values.redis.mode "bundled" -}}
- name: REDIS_PASSWORD
  valueFrom:
    secretKeyRef: {name: {{ .Values.redis.existingSecret | quote }}, key: {{ .Values.redis.existingSecretKey | quote }}}
- name: REDIS_URL
  value: redis://:$(REDIS_PASSWORD)@{{ include "rolloutfleet.fullname" . }}-redis:6379/0
{{- else -}}
- name: REDIS_URL
  valueFrom:
    secretKeyRef: {name: {{ .Values.redis.external.existingSecret | quote }}, key: {{ .Values.redis.external.existingSecretKey | quote }}}
{{- end }}
- name: ROLLOUTFLEET_RUN
  value: {{ include "rolloutfleet.run" . | quote }}
{{- end -}}

{{- define "rolloutfleet.redisMounts" -}}
{{- if and (eq .Values.redis.mode "external") .Values.redis.external.caSecret -}}
- {name: redis-ca, mountPath: /etc/rolloutfleet/redis, readOnly: true}
{{- end }}
{{- end -}}

{{- define "rolloutfleet.redisVolumes" -}}
{{- if and (eq .Values.redis.mode "external") .Values.redis.external.caSecret -}}
- name: redis-ca
  secret: {secretName: {{ .Values.redis.external.caSecret | quote }}}
{{- end }}
{{- end -}}

{{/* (list prefix settings): settings by their names as environment variables. */}}
{{- define "rolloutfleet.settingsEnv" -}}
{{- $prefix := first . -}}
{{- range $name, $value := last . }}
- name: {{ printf "%s%s" $prefix (upper $name) | quote }}
  value: {{ include "rolloutfleet.scalar" $value | quote }}
{{- end }}
{{- end -}}

{{/* A number, boolean or text as text; large integers without an exponent. */}}
{{- define "rolloutfleet.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) (lt . 9e15) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}
