{{- define "rolloutfleet.apiEnv" -}}
{{- include "rolloutfleet.redisEnv" . }}
- name: ROLLOUTFLEET_API_PORT
  value: "8000"
# desired_workers is the number that the scaling goes by: the same bounds.
- name: ROLLOUTFLEET_API_LEAST_WORKERS
  value: {{ int .Values.scaling.minWorkers | quote }}
- name: ROLLOUTFLEET_API_MOST_WORKERS
  value: {{ int .Values.scaling.maxWorkers | quote }}
- name: ROLLOUTFLEET_API_COOL_DOWN_SECONDS
  value: {{ int .Values.scaling.cooldownSeconds | quote }}
{{- with .Values.api.token }}
{{- if .existingSecret }}
- name: ROLLOUTFLEET_API_TOKEN
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .existingSecretKey | quote }}}
{{- end }}
{{- end }}
{{- include "rolloutfleet.settingsEnv" (list "ROLLOUTFLEET_API_" .Values.api.settings) }}
{{- with .Values.api.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}
