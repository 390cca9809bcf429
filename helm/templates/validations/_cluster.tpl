{{/* What the cluster must have. Where none is asked (helm template), --api-versions says it. */}}
{{- define "rolloutfleet.problems.cluster" -}}
{{- $needs := dict }}
{{- if include "rolloutfleet.spans" . }}
{{- $_ := set $needs "leaderworkerset.x-k8s.io/v1" "engine.nodes is more than 1: install LeaderWorkerSet, or set engine.nodes to 1" }}
{{- end }}
{{- if eq .Values.scaling.owner "keda" }}
{{- $_ := set $needs "keda.sh/v1alpha1" "scaling.owner is keda: install KEDA, or set scaling.owner to operator" }}
{{- end }}
{{- if or .Values.monitoring.podMonitor .Values.monitoring.serviceMonitor .Values.monitoring.prometheusRule }}
{{- $_ := set $needs "monitoring.coreos.com/v1" "monitoring asks for objects of the Prometheus operator: install it, or set monitoring.podMonitor, serviceMonitor and prometheusRule to false" }}
{{- end }}
{{- range $version, $mend := $needs }}
{{- if not ($.Capabilities.APIVersions.Has $version) }}
this cluster has no {{ $version }}, and {{ $mend }} (helm template asks no cluster: tell it by --api-versions {{ $version }})
{{- end }}
{{- end }}
{{- include "rolloutfleet.problems.handover" . }}
{{- end -}}

{{/* A field that a revision rendered and the next does not becomes 1, so the live number must agree before it changes hands. */}}
{{- define "rolloutfleet.problems.handover" -}}
{{- range $pool, $its := include "rolloutfleet.pools" . | fromJson }}
{{- $name := include "rolloutfleet.workerName" (list $ $pool) }}
{{- with lookup "apps/v1" "Deployment" $.Release.Namespace $name }}
{{- $live := int (dig "spec" "replicas" 1 .) }}
{{- $rendered := hasKey (dig "metadata" "annotations" dict .) "rolloutfleet/replicas-are-rendered" }}
{{- if and $.Values.operator.enabled $rendered (ne $live 1) }}
operator.enabled was false and Deployment {{ $name }} has {{ $live }} replicas, which this upgrade would set to 1: first upgrade with operator.enabled=false and worker.replicas=1 (workers give back what they hold), then enable the operator, which scales to worker.replicas again
{{- end }}
{{- if and (not $.Values.operator.enabled) (not $rendered) (ne $live (int $its.worker.replicas)) }}
operator.enabled is false, so the chart sets the number of workers, and Deployment {{ $name }} has {{ $live }} replicas, worker.replicas is {{ int $its.worker.replicas }}: set worker.replicas to {{ $live }}, and change it in an upgrade after this one
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
