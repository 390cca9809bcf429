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
{{- if not (regexMatch "^[a-z]" (include "rolloutfleet.fullname" .)) }}
names of objects would begin with {{ include "rolloutfleet.fullname" . | trunc 1 }}, and a Service's must begin with a letter: set fullnameOverride
{{- end }}
{{- range $version, $mend := $needs }}
{{- if not ($.Capabilities.APIVersions.Has $version) }}
this cluster has no {{ $version }}, and {{ $mend }} (helm template asks no cluster: tell it by --api-versions {{ $version }})
{{- end }}
{{- end }}
{{- if semverCompare "<1.34.0-0" .Capabilities.KubeVersion.Version }}
{{- range $pool, $its := include "rolloutfleet.pools" . | fromJson }}
{{- if dig "resourceClaims" nil $its.worker.pod }}
worker.pod.resourceClaims needs Kubernetes 1.34, and this cluster has {{ $.Capabilities.KubeVersion.Version }}: name the GPUs in engine.resources.limits instead
{{- end }}
{{- end }}
{{- end }}
{{- include "rolloutfleet.problems.handover" . }}
{{- end -}}

{{/* A field that a revision rendered and the next does not becomes 1, so the live number must agree before it changes hands. */}}
{{- define "rolloutfleet.problems.handover" -}}
{{- range $pool, $its := include "rolloutfleet.pools" . | fromJson }}
{{- $name := include "rolloutfleet.workerName" (list $ $pool) }}
{{- $spans := gt (int $its.engine.nodes) 1 }}
{{- $renders := include "rolloutfleet.rendersReplicas" (dict "root" $ "engine" $its.engine) }}
{{- $version := $spans | ternary "leaderworkerset.x-k8s.io/v1" "apps/v1" }}
{{- with lookup $version ($spans | ternary "LeaderWorkerSet" "Deployment") $.Release.Namespace $name }}
{{- $live := int (dig "spec" "replicas" 1 .) }}
{{- $rendered := hasKey (dig "metadata" "annotations" dict .) "rolloutfleet/replicas-are-rendered" }}
{{- if and $rendered (not $renders) (ne $live 1) }}
until now the chart set the number of workers of {{ $name }}, which is {{ $live }}, and this upgrade would make it 1: first upgrade with the old values and worker.replicas=1 (workers give back what they hold), then change scaling.owner or operator.enabled, and whoever scales then raises it again
{{- end }}
{{- if and $renders (not $rendered) (ne $live (int $its.worker.replicas)) }}
from this upgrade on the chart sets the number of workers of {{ $name }}, which is {{ $live }} now, and worker.replicas is {{ int $its.worker.replicas }}: set worker.replicas to {{ $live }}, and change it in an upgrade after this one
{{- end }}
{{- end }}
{{- end }}
{{- end -}}
