{{- define "rolloutfleet.engineEnv" -}}
{{- include "rolloutfleet.engineKeyEnv" (list "ENGINE_API_KEY" .engine.apiKey) }}
{{- if ne .engine.mode "simulated" }}
# Without it each health check is a generation, which fails while the engine is paused for a weight update.
- name: SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION
  value: "false"
- name: HOME
  value: /cache
# A uid without an entry in passwd has no name otherwise, and torch asks for it.
- name: USER
  value: engine
- name: TRITON_CACHE_DIR
  value: /cache/triton
- name: TORCHINDUCTOR_CACHE_DIR
  value: /cache/inductor
- name: FLASHINFER_WORKSPACE_BASE
  value: /cache
{{- if ne .root.Values.modelCache.type "emptyDir" }}
- name: HF_HUB_OFFLINE
  value: "1"
{{- end }}
{{- end }}
{{- with .engine.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (list variable apiKey) */}}
{{- define "rolloutfleet.engineKeyEnv" -}}
{{- with last . }}
{{- if .existingSecret -}}
- name: {{ first $ | quote }}
  valueFrom:
    secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .existingSecretKey | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Models and published weights, read-only, in engine and worker (which reads the tokenizer). */}}
{{- define "rolloutfleet.modelMounts" -}}
{{- if and (ne .root.Values.modelCache.type "emptyDir") (ne .engine.mode "simulated") }}
- {name: models, mountPath: {{ .root.Values.modelCache.mountPath | quote }}, readOnly: true}
{{- end }}
{{- if .root.Values.weights.existingClaim }}
- {name: weights, mountPath: {{ .root.Values.weights.mountPath | quote }}, readOnly: true}
{{- end }}
{{- end -}}

{{- define "rolloutfleet.engineVolumes" -}}
{{- if ne .engine.mode "external" }}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ eq .engine.mode "simulated" | ternary "16Mi" .engine.shmSize | quote }}}
- name: engine-tmp
  emptyDir: {sizeLimit: {{ .engine.cacheSize | quote }}}
{{- end }}
{{- if eq .engine.mode "sidecar" }}
- name: engine-cache
  emptyDir: {sizeLimit: {{ .engine.cacheSize | quote }}}
{{- end }}
{{- if and (eq .root.Values.modelCache.type "pvc") (ne .engine.mode "simulated") }}
- name: models
  persistentVolumeClaim: {claimName: {{ .root.Values.modelCache.existingClaim | quote }}, readOnly: true}
{{- else if and (eq .root.Values.modelCache.type "hostPath") (ne .engine.mode "simulated") }}
- name: models
  hostPath: {path: {{ .root.Values.modelCache.hostPath | quote }}, type: Directory}
{{- end }}
{{- if .root.Values.weights.existingClaim }}
- name: weights
  persistentVolumeClaim: {claimName: {{ .root.Values.weights.existingClaim | quote }}, readOnly: true}
{{- end }}
{{- end -}}
