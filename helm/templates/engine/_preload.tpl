{{- define "rolloutfleet.preloadSpec" -}}
{{- $cache := .Values.modelCache -}}
backoffLimit: 6
template:
  metadata:
    labels:
      {{- include "rolloutfleet.selector" (list . "preload") | nindent 6 }}
  spec:
    restartPolicy: OnFailure
    automountServiceAccountToken: false
    enableServiceLinks: false
    securityContext:
      {{- include "rolloutfleet.podSecurity" 10001 | nindent 6 }}
    {{- include "rolloutfleet.pullSecrets" . | nindent 4 }}
    {{- include "rolloutfleet.placement" .Values.operator.pod | nindent 4 }}
    containers:
      - name: preload
        image: {{ include "rolloutfleet.image" (list . .Values.image) | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy | quote }}
        command: [/bin/sh, -c]
        args:
          - |
            set -eu
            if [ -e "$MODEL/.complete" ]; then echo "$MODEL is there already"; exit; fi
            rm -rf "$MODEL" "$MODEL.partial"
            python -c 'import os, huggingface_hub as hub; hub.snapshot_download(os.environ["SOURCE"], local_dir=os.environ["MODEL"] + ".partial")'
            mv "$MODEL.partial" "$MODEL"
            touch "$MODEL/.complete"
        env:
          - {name: MODEL, value: {{ .Values.engine.model | quote }}}
          - {name: SOURCE, value: {{ $cache.preload.source | quote }}}
          - {name: HF_HOME, value: /tmp/hub}
          {{- with $cache.preload }}
          {{- if .existingSecret }}
          - name: HF_TOKEN
            valueFrom:
              secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .existingSecretKey | quote }}}
          {{- end }}
          {{- end }}
        resources:
          requests: {cpu: "1", memory: 2Gi}
          limits: {memory: 8Gi}
        securityContext:
          {{- include "rolloutfleet.containerSecurity" . | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
          - {name: models, mountPath: {{ $cache.mountPath | quote }}}
    volumes:
      - name: tmp
        emptyDir: {sizeLimit: 4Gi}
      - name: models
        persistentVolumeClaim: {claimName: {{ $cache.existingClaim | quote }}}
{{- end -}}
