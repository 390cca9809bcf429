{{/* A further pod of an engine that spans several: {root, pool, worker, engine}. */}}
{{- define "rolloutfleet.enginePodSpec" -}}
automountServiceAccountToken: false
{{- with .worker.serviceAccountName }}
serviceAccountName: {{ . | quote }}
{{- end }}
enableServiceLinks: false
# The worker drains in the first pod; this one ends after it.
terminationGracePeriodSeconds: 60
securityContext:
  {{- include "rolloutfleet.podSecurity" 10001 | nindent 2 }}
{{- include "rolloutfleet.pullSecrets" .root }}
{{- include "rolloutfleet.placement" .worker.pod | nindent 0 }}
containers:
  {{- include "rolloutfleet.engineContainer" . | nindent 2 }}
volumes:
  {{- include "rolloutfleet.engineVolumes" . | nindent 2 }}
  {{- with .worker.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* All pods of which engines of this release consist. */}}
{{- define "rolloutfleet.engineParts" -}}
matchLabels:
  app.kubernetes.io/name: rolloutfleet
  app.kubernetes.io/instance: {{ .Release.Name | quote }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [worker, engine]}
{{- end -}}
