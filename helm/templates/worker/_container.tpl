{{/* The worker: {root, pool, worker, engine}. */}}
{{- define "rolloutfleet.workerContainer" -}}
{{- $root := .root -}}
- name: worker
  image: {{ include "rolloutfleet.image" (list $root $root.Values.image) | quote }}
  imagePullPolicy: {{ $root.Values.image.pullPolicy | quote }}
  args: [worker]
  env:
    {{- include "rolloutfleet.redisEnv" $root | nindent 4 }}
    {{- include "rolloutfleet.identityEnv" $root | nindent 4 }}
    - name: ROLLOUTFLEET_ENGINE_URL
      value: {{ eq .engine.mode "external" | ternary .engine.external.url (printf "http://127.0.0.1:%d" (int .engine.port)) | quote }}
    {{- include "rolloutfleet.engineKeyEnv" (list "ROLLOUTFLEET_ENGINE_API_KEY" .engine.apiKey) | nindent 4 }}
    - name: ROLLOUTFLEET_DRAIN_SECONDS
      value: {{ int $root.Values.drain.seconds | quote }}
    - name: ROLLOUTFLEET_PROBE_PORT
      value: "8081"
    {{- if and (ne $root.Values.modelCache.type "emptyDir") (ne .engine.mode "simulated") }}
    - name: HF_HUB_OFFLINE
      value: "1"
    {{- end }}
    {{- include "rolloutfleet.settingsEnv" (list "ROLLOUTFLEET_" .worker.settings) | nindent 4 }}
    {{- with .worker.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: probes, containerPort: 8081}
  # The probes are served as soon as the process has read its packages: seconds, more on a slow disk.
  startupProbe:
    httpGet: {path: /healthz, port: probes}
    periodSeconds: 2
    timeoutSeconds: 5
    failureThreshold: 90
  # Lenient: a blocked event loop loses no lease, the heartbeats have a thread of their own.
  livenessProbe:
    httpGet: {path: /healthz, port: probes}
    periodSeconds: 20
    timeoutSeconds: 10
    failureThreshold: 6
  readinessProbe:
    httpGet: {path: /readyz, port: probes}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 3
  resources:
    {{- toYaml .worker.resources | nindent 4 }}
  securityContext:
    {{- include "rolloutfleet.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: tmp, mountPath: /tmp}
    {{- include "rolloutfleet.redisMounts" $root | nindent 4 }}
    {{- include "rolloutfleet.modelMounts" . | nindent 4 }}
    {{- with .worker.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Who this worker is, by the downward API. */}}
{{- define "rolloutfleet.identityEnv" -}}
- name: ROLLOUTFLEET_POD
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: ROLLOUTFLEET_POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: ROLLOUTFLEET_NODE
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
- name: ROLLOUTFLEET_FLEET
  value: {{ include "rolloutfleet.fleet" . | quote }}
{{- end -}}
