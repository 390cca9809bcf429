{{/* First part of the names of all objects: short, since much is appended, and without dots, which no Service may have. */}}
{{- define "rolloutfleet.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{- default $full .Values.fullnameOverride | replace "." "-" | trunc 36 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of a worker's Deployment: (list $ pool). */}}
{{- define "rolloutfleet.workerName" -}}
{{- $base := printf "%s-worker" (include "rolloutfleet.fullname" (first .)) -}}
{{- empty (last .) | ternary $base (printf "%s-%s" $base (last .)) -}}
{{- end -}}

{{- define "rolloutfleet.run" -}}
{{- .Values.run.name | default .Release.Name -}}
{{- end -}}

{{- define "rolloutfleet.fleet" -}}
{{- printf "%s/%s" .Release.Namespace .Release.Name -}}
{{- end -}}

{{/* What finds the pods of a component: (list $ component). Nothing in it that a user or a version can change. */}}
{{- define "rolloutfleet.selector" -}}
app.kubernetes.io/name: rolloutfleet
app.kubernetes.io/instance: {{ (first .).Release.Name | quote }}
app.kubernetes.io/component: {{ last . | quote }}
{{- end -}}

{{/* Labels of an object: (list $ component). */}}
{{- define "rolloutfleet.labels" -}}
{{ include "rolloutfleet.selector" . }}
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" (first .).Chart.Name (first .).Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{/* Reference of an image: (list $ image). */}}
{{- define "rolloutfleet.image" -}}
{{- $registry := (first .).Values.global.imageRegistry -}}
{{- $image := last . -}}
{{- $name := empty $registry | ternary $image.repository (printf "%s/%s" (trimSuffix "/" $registry) $image.repository) -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default (first .).Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "rolloutfleet.pullSecrets" -}}
{{- with .Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}
