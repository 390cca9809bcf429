{{- define "rolloutfleet.configureSpec" -}}
backoffLimit: 20
template:
  metadata:
    labels:
      {{- include "rolloutfleet.selector" (list . "configure") | nindent 6 }}
  spec:
    restartPolicy: OnFailure
    automountServiceAccountToken: false
    enableServiceLinks: false
    securityContext:
      {{- include "rolloutfleet.podSecurity" 10001 | nindent 6 }}
    {{- include "rolloutfleet.pullSecrets" . | nindent 4 }}
    {{- include "rolloutfleet.placement" .Values.operator.pod | nindent 4 }}
    containers:
      - name: configure
        image: {{ include "rolloutfleet.image" (list . .Values.image) | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
        args:
          - rolloutfleet.cli
          - configure
          {{- if eq .Values.run.configure "missing" }}
          - --only-missing
          {{- end }}
          {{- range $name, $value := .Values.run.config }}
          {{- /* YAML takes a bare n for the boolean false. */}}
          - --{{ eq $name "false" | ternary "n" $name | replace "_" "-" }}={{ include "rolloutfleet.scalar" $value }}
          {{- end }}
        env:
          {{- include "rolloutfleet.redisEnv" . | nindent 10 }}
        resources:
          requests: {cpu: 50m, memory: 128Mi}
          limits: {memory: 256Mi}
        securityContext:
          {{- include "rolloutfleet.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          {{- include "rolloutfleet.redisMounts" . | nindent 10 }}
    volumes:
      - name: tmp
        emptyDir: {sizeLimit: 64Mi}
      {{- include "rolloutfleet.redisVolumes" . | nindent 6 }}
{{- end -}}
