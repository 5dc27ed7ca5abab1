{{/* Names, labels and the image: what every object shares. */}}

{{- define "relight.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* With `--reuse-values` Helm keeps the defaults of the release before, which lack what came since. */}}
{{- define "relight.requireValues" -}}
{{- range list "journal" -}}
{{- if not (hasKey $.Values .) -}}
{{- fail (printf "these are the values of an earlier release of the chart, which has no `%s`: upgrade with --reset-then-reuse-values (Helm 3.14) in place of --reuse-values" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* 52 characters at most: the longest suffix is `-headless`, and pods add their own. */}}
{{- define "relight.fullname" -}}
{{- include "relight.requireValues" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "relight.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "relight.selectorLabels" -}}
app.kubernetes.io/name: {{ include "relight.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: server
{{- end -}}

{{/* Labels of an object; `component` is `server` by default. */}}
{{- define "relight.labels" -}}
{{- $own := dict
  "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-")
  "app.kubernetes.io/name" (include "relight.name" .)
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" (.Chart.AppVersion | toString)
  "app.kubernetes.io/component" "server"
  "app.kubernetes.io/part-of" "relight"
  "app.kubernetes.io/managed-by" .Release.Service -}}
{{- mergeOverwrite (deepCopy .Values.commonLabels) $own | toYaml -}}
{{- end -}}

{{/* Annotations of an object, its own over the common ones; nothing when there are none. Takes (list $ own). */}}
{{- define "relight.annotations" -}}
{{- $root := index . 0 -}}
{{- with mergeOverwrite (deepCopy $root.Values.commonAnnotations) (index . 1) -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The content of `metadata`. Takes (list $ suffix labels annotations), the last two beside the common ones. */}}
{{- define "relight.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "relight.fullname" $root }}{{ index . 1 }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- mergeOverwrite (include "relight.labels" $root | fromYaml) (index . 2) | toYaml | nindent 2 }}
{{- with include "relight.annotations" (list $root (index . 3)) }}
{{ . }}
{{- end }}
{{- end -}}

{{/* The Secret with the certificate of the API; empty: plaintext. */}}
{{- define "relight.tlsSecret" -}}
{{- if .Values.tls.certificate.enabled -}}
{{- include "relight.fullname" . }}-tls
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{/* What selects the pods of this release in PromQL: what its monitor calls them. Takes (list $ user). */}}
{{- define "relight.promSelector" -}}
{{- $root := index . 0 -}}
{{- $user := index . 1 -}}
{{- with $root.Values.metrics -}}
{{- if .serviceMonitor.enabled -}}
{{- printf "job=\"%s-metrics\", namespace=%q" (include "relight.fullname" $root) $root.Release.Namespace -}}
{{- else if .podMonitor.enabled -}}
{{- printf "job=\"%s/%s\"" $root.Release.Namespace (include "relight.fullname" $root) -}}
{{- else if .job -}}
{{- printf "job=%q" .job -}}
{{- else -}}
{{- fail (printf "%s needs metrics.podMonitor or metrics.serviceMonitor, or in metrics.job what Prometheus calls the pods" $user) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "relight.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "relight.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "relight.image" -}}
{{- $registry := .Values.global.imageRegistry | default .Values.image.registry -}}
{{- with $registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "relight.imagePullSecrets" -}}
{{- with concat (.Values.global.imagePullSecrets | default list) .Values.imagePullSecrets -}}
imagePullSecrets:
  {{- range . }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
  {{- end }}
{{- end -}}
{{- end -}}

{{- define "relight.kubeVersion" -}}
{{- .Values.kubeVersionOverride | default .Capabilities.KubeVersion.Version -}}
{{- end -}}

{{/* A list or a map that may hold templates. Takes (list $ value). */}}
{{- define "relight.tpl" -}}
{{- $value := index . 1 -}}
{{- tpl (kindIs "string" $value | ternary $value (toYaml $value)) (index . 0) -}}
{{- end -}}
