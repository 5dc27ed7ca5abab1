{{/* Replicas that act as one: whether they do, their key, and who may reach whom. */}}

{{/* Something if there may be several pods, and a store that they share. */}}
{{- define "relight.fleet" -}}
{{- $config := .Values.config | default dict -}}
{{- $store := dig "fleet" "store" "auto" $config | toString -}}
{{- $journal := or .Values.journal.existingSecret.name (hasPrefix "postgres" (dig "journal" "store" "" $config | toString)) -}}
{{- if and (or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1)) (ne $store "none") (or $journal (ne $store "auto")) -}}
yes
{{- end -}}
{{- end -}}

{{/* The Secret with the fleet's key, as a name and a key. */}}
{{- define "relight.fleetSecret" -}}
{{- with .Values.fleet.existingSecret -}}
{{- if .name -}}
{{- toYaml . -}}
{{- else -}}
name: {{ include "relight.fullname" $ }}-fleet
key: key
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The pods of this release of one component, as a peer of a NetworkPolicy. Takes (list $ component). */}}
{{- define "relight.podsOf" -}}
podSelector:
  matchLabels:
    {{- mergeOverwrite (include "relight.selectorLabels" (index . 0) | fromYaml) (dict "app.kubernetes.io/component" (index . 1)) | toYaml | nindent 4 }}
{{- end -}}

{{/* Something if `helm test` can ask the replicas for their state: it has what the API asks of a caller who administers. */}}
{{- define "relight.fleetTested" -}}
{{- $auth := dig "server" "auth" "" (.Values.config | default dict) -}}
{{- $key := or .Values.tests.adminKey.name (and (eq $auth "none") (not .Values.existingConfigMap)) -}}
{{- $tls := include "relight.tlsSecret" . -}}
{{- if and .Values.tests.enabled (include "relight.fleet" .) $key (not .Values.tls.clientCaKey) (or (not $tls) .Values.tls.caKey) (not (dig "server" "admin_service" "" (.Values.config | default dict))) -}}
yes
{{- end -}}
{{- end -}}
