{{/* The password goes into a file in memory that only its user reads, never into the arguments. */}}
{{- define "rolloutfleet.redisContainer" -}}
{{- $redis := .Values.redis -}}
- name: redis
  image: {{ include "rolloutfleet.image" (list . $redis.image) | quote }}
  imagePullPolicy: {{ $redis.image.pullPolicy | quote }}
  command:
    - /bin/sh
    - -c
    - |
      umask 077
      printf 'requirepass "%s"\n' "$REDISCLI_AUTH" > /run/redis/auth.conf
      exec {{ $redis.program }}-server /etc/redis/redis.conf --include /run/redis/auth.conf
  env:
    # By this name the probes' client reads it.
    - name: REDISCLI_AUTH
      valueFrom:
        secretKeyRef: {name: {{ $redis.existingSecret | quote }}, key: {{ $redis.existingSecretKey | quote }}}
  ports:
    - {name: redis, containerPort: 6379}
  # It answers LOADING until the append-only file is read; without -e a refused password would pass.
  startupProbe:
    exec: {command: [{{ $redis.program }}-cli, -e, ping]}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: {{ divf (int $redis.startupSeconds) 5 | ceil | int | max 1 }}
  # A slow command is no death: the socket is enough.
  livenessProbe:
    tcpSocket: {port: redis}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    exec: {command: [{{ $redis.program }}-cli, -e, ping]}
    periodSeconds: 5
    timeoutSeconds: 5
    failureThreshold: 3
  resources:
    requests: {cpu: {{ $redis.cpu | quote }}, memory: {{ $redis.memory | quote }}}
    limits: {memory: {{ $redis.memory | quote }}}
  securityContext:
    {{- include "rolloutfleet.containerSecurity" . | nindent 4 }}
  volumeMounts:
    - {name: config, mountPath: /etc/redis, readOnly: true}
    - {name: auth, mountPath: /run/redis}
    - {name: data, mountPath: /data}
{{- end -}}
