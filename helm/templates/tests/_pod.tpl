{{/* {root, name, account, script, env}: a pod that `helm test` runs; it fails with the sentence that its script ends with. */}}
{{- define "rolloutfleet.testPod" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "rolloutfleet.fullname" .root }}-test-{{ .name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "rolloutfleet.labels" (list .root "test") | nindent 4 }}
  annotations:
    helm.sh/hook: test
    helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
spec:
  restartPolicy: Never
  enableServiceLinks: false
  automountServiceAccountToken: {{ not (empty .account) }}
  {{- with .account }}
  serviceAccountName: {{ . | quote }}
  {{- end }}
  securityContext:
    {{- include "rolloutfleet.podSecurity" 10001 | nindent 4 }}
  {{- include "rolloutfleet.pullSecrets" .root | nindent 2 }}
  containers:
    - name: test
      image: {{ include "rolloutfleet.image" (list .root .root.Values.image) | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy | quote }}
      command: [python, -c]
      args:
        - |
          {{- .script | nindent 10 }}
      env:
        {{- .env | nindent 8 }}
      resources:
        requests: {cpu: 50m, memory: 128Mi}
        limits: {memory: 256Mi}
      securityContext:
        {{- include "rolloutfleet.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        {{- include "rolloutfleet.redisMounts" .root | nindent 8 }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- include "rolloutfleet.redisVolumes" .root | nindent 4 }}
{{- end -}}
