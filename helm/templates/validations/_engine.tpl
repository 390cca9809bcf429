{{- define "rolloutfleet.problems.engine" -}}
{{- if and .Values.drain.graceSeconds (lt (int .Values.drain.graceSeconds) (add .Values.drain.seconds 75 | int)) }}
drain.graceSeconds ({{ int .Values.drain.graceSeconds }}) is shorter than drain.seconds + 75 ({{ add .Values.drain.seconds 75 }}), so pods would be killed while they drain: leave it at 0, or raise it
{{- end }}
{{- range $pool, $its := include "rolloutfleet.pools" . | fromJson }}
{{- $where := empty $pool | ternary "" (printf "pools.%s: " $pool) }}
{{- include "rolloutfleet.problems.oneEngine" (merge (dict "root" $ "where" $where) $its) }}
{{- end }}
{{- with .Values.modelCache }}
{{- if and (eq .type "pvc") (not .existingClaim) }}
modelCache.type is pvc and existingClaim is empty: name a claim that many nodes can mount, or set type to emptyDir
{{- end }}
{{- if and (eq .type "hostPath") (not .hostPath) }}
modelCache.type is hostPath and hostPath is empty: name the folder of the node, or set type to emptyDir
{{- end }}
{{- if and .preload.enabled (ne .type "pvc") }}
modelCache.preload is enabled and modelCache.type is {{ .type }}: only a claim can be filled by a Job; set type to pvc, or disable preload
{{- end }}
{{- if and .preload.enabled (not .preload.source) }}
modelCache.preload is enabled and its source is empty: name the model to download
{{- end }}
{{- if and .preload.enabled (not (hasPrefix (printf "%s/" .mountPath) $.Values.engine.model)) }}
modelCache.preload is enabled and engine.model ({{ $.Values.engine.model }}) is not below modelCache.mountPath: set it to {{ .mountPath }}/NAME
{{- end }}
{{- end }}
{{- end -}}

{{/* {root, where, worker, engine} */}}
{{- define "rolloutfleet.problems.oneEngine" -}}
{{- $engine := .engine -}}
{{- if and (eq $engine.mode "sidecar") (not $engine.model) }}
{{ .where }}engine.model is empty: name the model, or set engine.mode to simulated to try the fleet without a GPU
{{- end }}
{{- if and (eq $engine.mode "external") (not $engine.external.url) }}
{{ .where }}engine.mode is external and engine.external.url is empty: name the server's URL
{{- end }}
{{- if and (eq $engine.mode "external") (gt (int .worker.replicas) 1) }}
{{ .where }}engine.mode is external and worker.replicas is {{ int .worker.replicas }}: one server has one worker; make a pool for each server
{{- end }}
{{- if and (ne $engine.mode "sidecar") (gt (int $engine.nodes) 1) }}
{{ .where }}engine.nodes is {{ int $engine.nodes }} and engine.mode is {{ $engine.mode }}: only SGLang as sidecar spans several pods; set nodes to 1
{{- end }}
{{- range $name, $resources := dict "engine" $engine.resources "worker" .worker.resources }}
{{- $most := dig "limits" "memory" "" $resources }}
{{- $asked := dig "requests" "memory" "" $resources }}
{{- if and $most $asked (gt (include "rolloutfleet.bytes" $asked | int64) (include "rolloutfleet.bytes" $most | int64)) }}
{{ $.where }}{{ $name }}.resources asks for {{ $asked }} of memory, more than its limit of {{ $most }}: lower requests.memory or raise limits.memory
{{- end }}
{{- end }}
{{- $limit := dig "limits" "memory" "" $engine.resources }}
{{- if and (eq $engine.mode "sidecar") $limit (ge (include "rolloutfleet.bytes" $engine.shmSize | int64) (include "rolloutfleet.bytes" $limit | int64)) }}
{{ .where }}engine.shmSize ({{ $engine.shmSize }}) is not below engine.resources.limits.memory ({{ $limit }}), which counts it, so the engine would be killed again and again: lower shmSize or raise the limit
{{- end }}
{{- end -}}
