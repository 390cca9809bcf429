{{- define "rolloutfleet.problems.scaling" -}}
{{- $scaling := .Values.scaling -}}
{{- if gt (int $scaling.minWorkers) (int $scaling.maxWorkers) }}
scaling.minWorkers ({{ int $scaling.minWorkers }}) is more than scaling.maxWorkers ({{ int $scaling.maxWorkers }}): lower it
{{- end }}
{{- if and (eq $scaling.owner "operator") (not .Values.operator.enabled) }}
scaling.owner is operator and operator.enabled is false: enable it, or set scaling.owner to fixed
{{- end }}
{{- if and (eq $scaling.owner "keda") (not .Values.operator.enabled) }}
scaling.owner is keda and operator.enabled is false, so the chart would set the number of workers, too: enable the operator, which then only drains and evicts
{{- end }}
{{- if and (eq $scaling.owner "keda") (not .Values.api.enabled) }}
scaling.owner is keda and api.enabled is false: KEDA asks the API for the number of workers, so enable it
{{- end }}
{{- if and (eq $scaling.owner "keda") (gt (len .Values.pools) 1) }}
scaling.owner is keda and there are {{ len .Values.pools }} pools, of which each would get the whole number of workers: set scaling.owner to operator or fixed, or make a release for each pool
{{- end }}
{{- range .Values.extraObjects }}
{{- if and (has (dig "kind" "" .) (list "ScaledObject" "HorizontalPodAutoscaler")) (hasPrefix (printf "%s-worker" (include "rolloutfleet.fullname" $)) (dig "spec" "scaleTargetRef" "name" "" .)) }}
extraObjects has a {{ .kind }} for the workers, whose number scaling.owner ({{ $scaling.owner }}) already sets: two owners would undo each other; set scaling.owner to keda and leave the object out
{{- end }}
{{- end }}
{{- end -}}
