{{/* What is in the cluster, where there is one to ask: `helm template` has none, and these are then empty. */}}

{{- define "relight.liveDeployment" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace (include "relight.fullname" .) }}{{ toYaml . }}{{ end }}
{{- end -}}

{{- define "relight.liveReplicaSets" -}}
{{- with lookup "apps/v1" "ReplicaSet" .Release.Namespace "" }}{{ toYaml .items }}{{ end }}
{{- end -}}

{{/* Takes (list $ name). */}}
{{- define "relight.liveSecret" -}}
{{- with lookup "v1" "Secret" (index . 0).Release.Namespace (index . 1) }}{{ toYaml . }}{{ end }}
{{- end -}}

{{/* Takes (list $ name). */}}
{{- define "relight.liveConfigMap" -}}
{{- with lookup "v1" "ConfigMap" (index . 0).Release.Namespace (index . 1) }}{{ toYaml . }}{{ end }}
{{- end -}}
