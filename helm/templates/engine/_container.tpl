{{/* One engine: {root, pool, worker, engine, sidecar}. */}}
{{- define "rolloutfleet.engineContainer" -}}
{{- $simulated := eq .engine.mode "simulated" -}}
- name: engine
  {{- if .sidecar }}
  restartPolicy: Always
  {{- end }}
  image: {{ include "rolloutfleet.image" (list .root ($simulated | ternary .root.Values.image .engine.image)) | quote }}
  imagePullPolicy: {{ ($simulated | ternary .root.Values.image .engine.image).pullPolicy | quote }}
  {{- if $simulated }}
  {{- include "rolloutfleet.simulatorArgs" . | nindent 2 }}
  {{- else }}
  {{- include "rolloutfleet.sglangArgs" . | nindent 2 }}
  {{- end }}
  env:
    {{- include "rolloutfleet.engineEnv" . | nindent 4 }}
  ports:
    - {name: engine, containerPort: {{ int .engine.port }}}
  {{- if .sidecar }}
  startupProbe:
    httpGet: {path: {{ .engine.probes.path | quote }}, port: engine}
    periodSeconds: {{ $simulated | ternary 1 10 }}
    timeoutSeconds: 10
    failureThreshold: {{ divf (int .engine.startupSeconds) ($simulated | ternary 1 10) | ceil | int | max 1 }}
  # Lenient: the engine is silent during a long prefill and while weights are loaded, and its watchdog finds hangs.
  livenessProbe:
    httpGet: {path: {{ .engine.probes.path | quote }}, port: engine}
    periodSeconds: 30
    timeoutSeconds: 10
    failureThreshold: {{ divf (int .engine.probes.livenessSeconds) 30 | ceil | int | max 1 }}
  {{- end }}
  resources:
    {{- toYaml ($simulated | ternary .engine.simulated.resources .engine.resources) | nindent 4 }}
  securityContext:
    {{- if $simulated }}
    {{- include "rolloutfleet.containerSecurity" . | nindent 4 }}
    {{- else }}
    {{- toYaml .engine.securityContext | nindent 4 }}
    {{- end }}
  volumeMounts:
    - {name: engine-tmp, mountPath: /tmp}
    {{- if not $simulated }}
    - {name: engine-cache, mountPath: /cache}
    {{- end }}
    - {name: shm, mountPath: /dev/shm}
    {{- include "rolloutfleet.modelMounts" . | nindent 4 }}
    {{- with .engine.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "rolloutfleet.simulatorArgs" -}}
args:
  - deploy
  - simulator
  - --host=0.0.0.0
  - --port={{ int .engine.port }}
  - --any-weights
  {{- if .engine.apiKey.existingSecret }}
  - --api-key=$(ENGINE_API_KEY)
  {{- end }}
  {{- range .engine.args }}
  - {{ . | quote }}
  {{- end }}
{{- end -}}

{{/* /dev/shm outlives a restart of the container and counts against its memory, so the start empties it. */}}
{{- define "rolloutfleet.sglangArgs" -}}
command:
  - /bin/sh
  - -c
  - |
    rm -rf /dev/shm/* /dev/shm/.[!.]*
    {{- if .root.Values.modelCache.preload.enabled }}
    until [ -e {{ printf "%s/.complete" .engine.model | squote }} ]; do echo "waits for the model's download"; sleep 5; done
    {{- end }}
    exec python3 -m sglang.launch_server "$@"
  - engine
args:
  - {{ printf "--model-path=%s" .engine.model | quote }}
  - --host=0.0.0.0
  - --port={{ int .engine.port }}
  {{- if .engine.apiKey.existingSecret }}
  - --api-key=$(ENGINE_API_KEY)
  - --admin-api-key=$(ENGINE_API_KEY)
  {{- end }}
  {{- if gt (int .engine.nodes) 1 }}
  - --nnodes={{ int .engine.nodes }}
  - --node-rank=$(LWS_WORKER_INDEX)
  - --dist-init-addr=$(LWS_LEADER_ADDRESS):20000
  {{- end }}
  {{- range .engine.args }}
  - {{ . | quote }}
  {{- end }}
{{- end -}}
