{{/* The configuration file: the value `config`, with the addresses and references that the chart sets. */}}

{{/* Providers that Relight finds by their variables alone; the same names as in src/config/discover.rs. */}}
{{- define "relight.wellKnownProviders" -}}
openai anthropic gemini mistral groq deepseek xai cerebras together fireworks openrouter
{{- end -}}

{{/* The variable of a provider's key. Takes (list name settings). */}}
{{- define "relight.providerEnv" -}}
{{- $settings := index . 1 -}}
{{- if $settings.env -}}
{{- $settings.env -}}
{{- else -}}
{{- index . 0 | upper | replace "-" "_" | replace "." "_" }}_API_KEY
{{- end -}}
{{- end -}}

{{/* A duration such as `30s` or `1m30s` in whole seconds, rounded up. Takes (list path text). */}}
{{- define "relight.seconds" -}}
{{- $path := index . 0 -}}
{{- $text := index . 1 | toString | nospace -}}
{{- if not (regexMatch "^([0-9]+(\\.[0-9]+)?(ms|s|min|m|h|d))+$" $text) -}}
{{- fail (printf "%s is %q: write a duration with its unit, such as 30s or 2m" $path $text) -}}
{{- end -}}
{{- $millis := dict "ms" 1 "s" 1000 "m" 60000 "min" 60000 "h" 3600000 "d" 86400000 -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|min|m|h|d)" $text -1 -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $total = addf $total (mulf (float64 $number) (index $millis (trimPrefix $number .) | float64)) -}}
{{- end -}}
{{- divf $total 1000.0 | ceil | int64 -}}
{{- end -}}

{{/*
The ConfigMap that pods read. Where a changed configuration restarts them, its name is that of its content: a configuration
with which no pod starts then reaches new pods only, and those that serve keep theirs, also when they are started again.
*/}}
{{- define "relight.configMapName" -}}
{{- if .Values.existingConfigMap -}}
{{- .Values.existingConfigMap -}}
{{- else if .Values.restartOnConfigChange -}}
{{- printf "%s-%s" (include "relight.fullname" .) (include "relight.config" . | sha256sum | trunc 8) -}}
{{- else -}}
{{- include "relight.fullname" . -}}
{{- end -}}
{{- end -}}

{{/* A ConfigMap with a configuration. Takes (list $ name immutable text). */}}
{{- define "relight.configMap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ index . 1 }}
  namespace: {{ (index . 0).Release.Namespace }}
  labels:
    {{- include "relight.labels" (index . 0) | nindent 4 }}
  {{- with include "relight.annotations" (list (index . 0) dict) }}
  {{- . | nindent 2 }}
  {{- end }}
{{- if index . 2 }}
immutable: true
{{- end }}
data:
  relight.yaml: |
    {{- index . 3 | nindent 4 }}
{{- end -}}

{{/* The other ConfigMaps that ReplicaSets with pods read, as a list of name, immutable and text. */}}
{{- define "relight.configMapsInUse" -}}
{{- $own := include "relight.configMapName" . -}}
{{- $names := list -}}
{{- range include "relight.liveReplicaSets" . | fromYamlArray -}}
{{- $owners := dig "metadata" "ownerReferences" list . -}}
{{- $is_ours := and $owners (eq (index $owners 0).name (include "relight.fullname" $)) -}}
{{- if and $is_ours (gt (int .spec.replicas) 0) -}}
{{- range dig "spec" "template" "spec" "volumes" list . -}}
{{- if and (eq .name "config") .configMap -}}
{{- $names = append $names .configMap.name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $used := list -}}
{{- range without $names $own | uniq -}}
{{- $live := include "relight.liveConfigMap" (list $ .) | fromYaml -}}
{{- with dig "data" "relight.yaml" "" $live -}}
{{- $used = append $used (dict "name" $live.metadata.name "immutable" (default false $live.immutable) "text" .) -}}
{{- end -}}
{{- end -}}
{{- toYaml $used -}}
{{- end -}}

{{/* Refuses a secret that would stand in the ConfigMap for everybody to read. Takes (list path value advice). */}}
{{- define "relight.refuseSecret" -}}
{{- $value := index . 1 | default "" | toString -}}
{{- if and $value (not (contains "${" $value)) -}}
{{- fail (printf "%s is a secret in plain text, and would be in a ConfigMap; %s" (index . 0) (index . 2)) -}}
{{- end -}}
{{- end -}}

{{/* All faults of the values together that their schema cannot express. */}}
{{- define "relight.validate" -}}
{{- $config := .Values.config | default dict -}}
{{- $server := $config.server | default dict -}}
{{- range $name, $port := dict "listen" "grpc" "admin_listen" "admin" -}}
{{- if hasKey $server $name -}}
{{- fail (printf "config.server.%s is written by the chart; set listenAddress and containerPorts.%s" $name $port) -}}
{{- end -}}
{{- end -}}
{{- if hasKey ($server.openai_front | default dict) "listen" -}}
{{- fail "config.server.openai_front.listen is written by the chart; set openaiFront.enabled and containerPorts.openai" -}}
{{- end -}}
{{- if not .Values.openaiFront.enabled -}}
{{- range $path, $set := dict "config.server.openai_front" (hasKey $server "openai_front") "httpRoute" .Values.httpRoute.enabled "ingress.openai" .Values.ingress.openai.enabled -}}
{{- if $set -}}
{{- fail (printf "%s is of the OpenAI-compatible front, which does not listen; set openaiFront.enabled" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey $server "tls" -}}
{{- fail "config.server.tls is written by the chart; set tls.existingSecret and tls.clientCaKey" -}}
{{- end -}}
{{- if and .Values.tls.existingSecret .Values.tls.certificate.enabled -}}
{{- fail "tls.existingSecret and tls.certificate are two certificates for one port; keep one" -}}
{{- end -}}
{{- if and .Values.journal.existingSecret.name (dig "journal" "store" "" $config) -}}
{{- fail "journal.existingSecret and config.journal.store are two journals; keep one" -}}
{{- end -}}
{{- if and $server.keys (eq ($server.auth | default "api_key") "none") -}}
{{- fail "config.server.keys has no effect while config.server.auth is none; set config.server.auth to api_key" -}}
{{- end -}}
{{- if and (eq ($server.auth | default "") "api_key") (not $server.keys) -}}
{{- fail "config.server.auth api_key admits no caller without config.server.keys" -}}
{{- end -}}
{{- if and .Values.tls.caKey (not (include "relight.tlsSecret" .)) -}}
{{- fail "tls.caKey is a key of tls.existingSecret, which is not set" -}}
{{- end -}}
{{- if and .Values.tls.clientCaKey (not (include "relight.tlsSecret" .)) -}}
{{- fail "tls.clientCaKey is a key of tls.existingSecret, which is not set" -}}
{{- end -}}
{{- if and (eq ($server.auth | default "") "client_certificate") (not .Values.tls.clientCaKey) -}}
{{- fail "config.server.auth client_certificate admits no caller without a certificate (tls.existingSecret or tls.certificate) and tls.clientCaKey" -}}
{{- end -}}
{{- $advice := "use providers.<name>.existingSecret, or a ${ENV} reference" -}}
{{- range $name, $provider := $config.providers -}}
{{- $path := printf "config.providers.%s" $name -}}
{{- include "relight.refuseSecret" (list (printf "%s.api_key" $path) $provider.api_key $advice) -}}
{{- range $credential, $settings := $provider.credentials -}}
{{- include "relight.refuseSecret" (list (printf "%s.credentials.%s.api_key" $path $credential) $settings.api_key "use a ${ENV} reference and extraEnv") -}}
{{- end -}}
{{- range $header, $value := $provider.headers -}}
{{- if regexMatch "(?i)(auth|key|token|secret|cookie|password)" $header -}}
{{- include "relight.refuseSecret" (list (printf "%s.headers.%s" $path $header) $value "use a ${ENV} reference and extraEnv") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $server := ($config.tools | default dict).servers -}}
{{- $path := printf "config.tools.servers.%s" $name -}}
{{- include "relight.refuseSecret" (list (printf "%s.api_key" $path) $server.api_key "use a ${ENV} reference and extraEnv") -}}
{{- range $section, $values := dict "headers" $server.headers "env" $server.env -}}
{{- range $key, $value := $values -}}
{{- if regexMatch "(?i)(auth|key|token|secret|cookie|password)" $key -}}
{{- include "relight.refuseSecret" (list (printf "%s.%s.%s" $path $section $key) $value "use a ${ENV} reference and extraEnv") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $header, $value := ($config.telemetry | default dict).otlp_headers -}}
{{- include "relight.refuseSecret" (list (printf "config.telemetry.otlp_headers.%s" $header) $value "use a ${ENV} reference and extraEnv") -}}
{{- end -}}
{{- include "relight.refuseSecret" (list "config.fleet.key" (dig "fleet" "key" "" $config) "leave it out: the chart makes one, or takes fleet.existingSecret") -}}
{{- $store := ($config.journal | default dict).store | default "" -}}
{{- if regexMatch "://[^/@]*:[^/@]+@" (regexReplaceAll "\\$\\{[^}]*\\}" $store "") -}}
{{- fail "config.journal.store holds a password in plain text, and would be in a ConfigMap; use journal.existingSecret" -}}
{{- end -}}
{{- $known := include "relight.wellKnownProviders" . | trim | splitList " " -}}
{{- range $name, $settings := .Values.providers -}}
{{- $written := get ($config.providers | default dict) $name -}}
{{- $path := printf "providers.%s" $name -}}
{{- if and (not $.Values.existingConfigMap) (not $written) (or (eq ($settings.as | default "env") "file") $settings.env (not (has $name $known))) -}}
{{- fail (printf "%s needs config.%s, which sets its dialect and base_url" $path $path) -}}
{{- end -}}
{{- if and $written (or (hasKey $written "api_key") (hasKey $written "api_key_file")) -}}
{{- fail (printf "%s.existingSecret and a key in config.%s are two keys for one provider; keep one" $path $path) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled .Values.metrics.podMonitor.enabled -}}
{{- fail "metrics.serviceMonitor and metrics.podMonitor would scrape every pod twice; keep one" -}}
{{- end -}}
{{- end -}}

{{/* The file itself. */}}
{{- define "relight.config" -}}
{{- $config := deepCopy (.Values.config | default dict) -}}
{{- $server := $config.server | default dict -}}
{{- $_ := set $server "listen" (printf "%s:%d" .Values.listenAddress (int .Values.containerPorts.grpc)) -}}
{{- $_ := set $server "admin_listen" (printf "%s:%d" .Values.listenAddress (int .Values.containerPorts.admin)) -}}
{{- if .Values.openaiFront.enabled -}}
{{- $_ := set $server "openai_front" (mergeOverwrite ($server.openai_front | default dict) (dict "listen" (printf "%s:%d" .Values.listenAddress (int .Values.containerPorts.openai)))) -}}
{{- end -}}
{{- if include "relight.tlsSecret" . -}}
{{- $tls := dict "cert_file" "/run/relight/tls/tls.crt" "key_file" "/run/relight/tls/tls.key" -}}
{{- with .Values.tls.clientCaKey -}}
{{- $_ := set $tls "client_ca_file" (printf "/run/relight/tls/%s" .) -}}
{{- end -}}
{{- $_ := set $server "tls" $tls -}}
{{- end -}}
{{- $_ := set $config "server" $server -}}
{{- if .Values.journal.existingSecret.name -}}
{{- $_ := set $config "journal" (mergeOverwrite ($config.journal | default dict) (dict "store" "${RELIGHT_JOURNAL_URL}")) -}}
{{- end -}}
{{- if include "relight.fleet" . -}}
{{- $fleet := dict "key" "${RELIGHT_FLEET_KEY}" -}}
{{- if and (include "relight.tlsSecret" .) .Values.tls.caKey -}}
{{- $_ := set $fleet "ca_file" (printf "/run/relight/tls/%s" .Values.tls.caKey) -}}
{{- end -}}
{{- $_ := set $config "fleet" (mergeOverwrite $fleet ($config.fleet | default dict)) -}}
{{- end -}}
{{- range $name, $settings := .Values.providers -}}
{{- with get ($config.providers | default dict) $name -}}
{{- if eq ($settings.as | default "env") "file" -}}
{{- $_ := set . "api_key_file" (printf "/run/relight/keys/%s/%s" $name $settings.existingSecret.key) -}}
{{- else -}}
{{- $_ := set . "api_key" (printf "${%s}" (include "relight.providerEnv" (list $name $settings))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if .Values.telemetry.kubernetesAttributes -}}
{{- $telemetry := $config.telemetry | default dict -}}
{{- $attributes := dict
  "k8s.pod.name" "${K8S_POD_NAME:-unknown}"
  "k8s.namespace.name" "${K8S_NAMESPACE_NAME:-unknown}"
  "k8s.node.name" "${K8S_NODE_NAME:-unknown}" -}}
{{- $_ := set $telemetry "resource" (mergeOverwrite $attributes ($telemetry.resource | default dict)) -}}
{{- $_ := set $config "telemetry" $telemetry -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* Seconds from the order to end until the pod is killed. */}}
{{- define "relight.gracePeriod" -}}
{{- $drain := include "relight.seconds" (list "config.server.drain_timeout" (dig "server" "drain_timeout" "30s" (.Values.config | default dict))) | int64 -}}
{{- $least := add .Values.preStopSleepSeconds $drain 10 -}}
{{- if kindIs "invalid" .Values.terminationGracePeriodSeconds -}}
{{- $least -}}
{{- else if lt (int64 .Values.terminationGracePeriodSeconds) (int64 $least) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d and would cut calls in flight: preStopSleepSeconds + config.server.drain_timeout + 10 is %d" (int64 .Values.terminationGracePeriodSeconds) (int64 $least)) -}}
{{- else -}}
{{- int64 .Values.terminationGracePeriodSeconds -}}
{{- end -}}
{{- end -}}
