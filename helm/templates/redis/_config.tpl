{{- define "rolloutfleet.redisConfig" -}}
bind * -::*
port 6379
dir /data
# What is lost with the power is at most the last second; a restart loses nothing.
appendonly yes
appendfsync everysec
# Snapshots would only double the writing.
save ""
# A full memory refuses new groups; it must never delete one.
maxmemory {{ include "rolloutfleet.bytes" .Values.redis.memory | int64 | mulf 0.7 | int64 }}
maxmemory-policy noeviction
# The fork that rewrites the file runs beside the server, within the container's memory.
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 256mb
tcp-keepalive 60
maxclients 10000
{{- range .Values.redis.extraConfig }}
{{ . }}
{{- end }}
{{- end -}}
