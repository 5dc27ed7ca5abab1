{{/* What the server and `helm test` see alike: environment, mounts and volumes. */}}

{{- define "relight.env" -}}
env:
  - name: K8S_POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: K8S_NAMESPACE_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
  - name: K8S_NODE_NAME
    valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
  {{- range $name, $settings := .Values.providers }}
  {{- if ne ($settings.as | default "env") "file" }}
  - name: {{ include "relight.providerEnv" (list $name $settings) }}
    valueFrom:
      secretKeyRef:
        name: {{ $settings.existingSecret.name }}
        key: {{ $settings.existingSecret.key }}
  {{- end }}
  {{- end }}
  {{- with .Values.journal.existingSecret }}
  {{- if .name }}
  - name: RELIGHT_JOURNAL_URL
    valueFrom:
      secretKeyRef:
        {{- toYaml . | nindent 8 }}
  {{- end }}
  {{- end }}
  {{- if include "relight.fleet" . }}
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - name: RELIGHT_FLEET_KEY
    valueFrom:
      secretKeyRef:
        {{- include "relight.fleetSecret" . | nindent 8 }}
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- include "relight.tpl" (list $ .) | nindent 2 }}
  {{- end }}
{{- if or .Values.existingSecret .Values.extraEnvFrom }}
envFrom:
  {{- with .Values.existingSecret }}
  - secretRef:
      name: {{ . }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- include "relight.tpl" (list $ .) | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "relight.volumeMounts" -}}
volumeMounts:
  - name: config
    mountPath: /etc/relight
    readOnly: true
  {{- if include "relight.tlsSecret" . }}
  - name: tls
    mountPath: /run/relight/tls
    readOnly: true
  {{- end }}
  {{- range $name, $settings := .Values.providers }}
  {{- if eq ($settings.as | default "env") "file" }}
  - name: key-{{ $name | lower | replace "_" "-" | replace "." "-" }}
    mountPath: /run/relight/keys/{{ $name }}
    readOnly: true
  {{- end }}
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- include "relight.tpl" (list $ .) | nindent 2 }}
  {{- end }}
{{- end -}}

{{- define "relight.volumes" -}}
volumes:
  - name: config
    configMap:
      name: {{ include "relight.configMapName" . }}
  {{- with include "relight.tlsSecret" . }}
  - name: tls
    secret:
      secretName: {{ . }}
  {{- end }}
  {{- range $name, $settings := .Values.providers }}
  {{- if eq ($settings.as | default "env") "file" }}
  - name: key-{{ $name | lower | replace "_" "-" | replace "." "-" }}
    secret:
      secretName: {{ $settings.existingSecret.name }}
      items:
        - key: {{ $settings.existingSecret.key }}
          path: {{ $settings.existingSecret.key }}
  {{- end }}
  {{- end }}
  {{- with .Values.extraVolumes }}
  {{- include "relight.tpl" (list $ .) | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* A native gRPC probe of the admin port. Takes (list $ settings service). */}}
{{- define "relight.probe" -}}
grpc:
  port: {{ (index . 0).Values.containerPorts.admin }}
  service: {{ index . 2 | quote }}
{{ omit (index . 1) "enabled" | toYaml }}
{{- end -}}
