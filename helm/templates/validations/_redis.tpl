{{/* One problem a line; nothing where all is well. */}}
{{- define "rolloutfleet.problems.redis" -}}
{{- $redis := .Values.redis -}}
{{- if and (eq $redis.mode "external") (not $redis.external.existingSecret) }}
redis.mode is external and redis.external.existingSecret is empty: make a secret with the URL (kubectl create secret generic NAME --from-literal=url=redis://...) and name it there
{{- end }}
{{- if eq $redis.mode "bundled" }}
{{- if not $redis.existingSecret }}
redis.existingSecret is empty: make a secret with a password (kubectl create secret generic NAME --from-literal=password=$(openssl rand -hex 24)) and name it there
{{- end }}
{{- with $redis.persistence }}
{{- if and (eq .type "pvc") (not .storageClass) }}
redis.persistence.type is pvc and storageClass is empty, so the claim could wait for ever: name a class (kubectl get storageclass), or "-" for a volume that you made by hand, or set type to emptyDir to try it out
{{- end }}
{{- if and (eq .type "existingClaim") (not .existingClaim) }}
redis.persistence.type is existingClaim and existingClaim is empty: name the claim, or set type to pvc
{{- end }}
{{- if and (ne .type "existingClaim") (lt (include "rolloutfleet.bytes" .size | int64) (include "rolloutfleet.bytes" $redis.memory | int64)) }}
redis.persistence.size ({{ .size }}) is less than redis.memory ({{ $redis.memory }}), and the append-only file is rewritten beside the old one: make it at least three times the memory
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
