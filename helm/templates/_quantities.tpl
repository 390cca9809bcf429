{{/* Bytes of a quantity of memory. */}}
{{- define "rolloutfleet.bytes" -}}
{{- $text := kindIs "float64" . | ternary (printf "%.0f" (float64 .)) (toString .) -}}
{{- $factors := dict "" 1 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexReplaceAll "^[0-9.]+" $text "" -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $factors $unit | default 1 | float64) | int64 -}}
{{- end -}}

{{/* Grace of a worker's pod: what is held may finish, then it is given back, then the engine ends. */}}
{{- define "rolloutfleet.graceSeconds" -}}
{{- .Values.drain.graceSeconds | int | default (add (int .Values.drain.seconds) 75) -}}
{{- end -}}

{{/* Longest that one step of a rollout may take: the new pod waits for the GPU that the old one holds, so both count. */}}
{{- define "rolloutfleet.deadlineSeconds" -}}
{{- add (include "rolloutfleet.graceSeconds" .root | int) (int .engine.startupSeconds) 900 -}}
{{- end -}}

{{/* (list old new): new over old, map by map, as JSON. Sprig's merges keep the old value where the new one is 0 or false. */}}
{{- define "rolloutfleet.overlay" -}}
{{- $out := deepCopy (first .) -}}
{{- range $key, $value := last . -}}
{{- if and (kindIs "map" $value) (kindIs "map" (get $out $key)) -}}
{{- $_ := set $out $key (include "rolloutfleet.overlay" (list (get $out $key) $value) | fromJson) -}}
{{- else -}}
{{- $_ := set $out $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $out -}}
{{- end -}}

{{/* Pools of workers as JSON: name ("" where there is only one) to its `worker` and `engine`. */}}
{{- define "rolloutfleet.pools" -}}
{{- $base := dict "worker" .Values.worker "engine" .Values.engine -}}
{{- $pools := dict -}}
{{- range $name, $over := .Values.pools -}}
{{- $_ := set $pools $name (include "rolloutfleet.overlay" (list $base $over) | fromJson) -}}
{{- end -}}
{{- $pools | default (dict "" $base) | toJson -}}
{{- end -}}

{{/* {root, engine}: "yes" where the chart sets the number of workers. Otherwise the field is in no revision: one that was
rendered once and then is not becomes 1, and one that is rendered while another scales is reset at each upgrade. */}}
{{- define "rolloutfleet.rendersReplicas" -}}
{{- if not .root.Values.operator.enabled }}yes{{ end -}}
{{- end -}}
