//! Destinations of traces and metrics: what is written, and the standard variables of OpenTelemetry
//! if nothing is.

use http::Uri;

use super::{
    environment::Environment,
    observe::{OtlpEndpoint, OtlpEndpoints, OtlpProtocol, TelemetryConfig},
};

const URL: &str = "is no URL; write it like http://localhost:4317";

/// Fills in the name of the service and the destination of each signal. Returns the faults of the variables, by the setting
/// that they stand for.
pub(super) fn complete(
    telemetry: &mut TelemetryConfig,
    environment: &dyn Environment,
) -> Vec<(String, String)> {
    let var = |name: &str| {
        environment
            .var(name)
            .map(|value| value.trim().to_owned())
            .filter(|value| !value.is_empty())
    };
    if let Some(name) = var("OTEL_SERVICE_NAME") {
        telemetry.service_name = name;
    }
    let mut faults = Vec::new();
    let is_written = telemetry.otlp_endpoint.is_some();
    if !is_written {
        telemetry.otlp_endpoint = var("OTEL_EXPORTER_OTLP_ENDPOINT");
    }
    let mut endpoint_of = |signal: &str| {
        let variable = |what: &str| format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.to_uppercase());
        let own = variable("ENDPOINT");
        let url = if is_written { None } else { var(&own) };
        if url.as_ref().is_some_and(|url| !is_url(url)) {
            faults.push((
                "telemetry.otlp_endpoint".to_owned(),
                format!("{URL}: {own}"),
            ));
        }
        let protocol = telemetry.otlp_protocol.unwrap_or_else(|| {
            let named = [
                variable("PROTOCOL"),
                "OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(),
            ];
            let Some((value, name)) = named.into_iter().find_map(|name| Some((var(&name)?, name)))
            else {
                return OtlpProtocol::default();
            };
            OtlpProtocol::named(&value).unwrap_or_else(|| {
                let reason = format!(
                    "cannot be `{value}`, as {name} has it; expected one of grpc, http/protobuf"
                );
                faults.push(("telemetry.otlp_protocol".to_owned(), reason));
                OtlpProtocol::default()
            })
        });
        let shared = telemetry
            .otlp_endpoint
            .as_deref()
            .map(|base| match protocol {
                OtlpProtocol::Grpc => base.to_owned(),
                OtlpProtocol::HttpProtobuf => format!("{}/v1/{signal}", base.trim_end_matches('/')),
            });
        url.or(shared).map(|url| OtlpEndpoint { url, protocol })
    };
    telemetry.endpoints = OtlpEndpoints {
        traces: endpoint_of("traces"),
        metrics: endpoint_of("metrics"),
    };
    if telemetry
        .otlp_endpoint
        .as_ref()
        .is_some_and(|url| !is_url(url))
    {
        faults.push(("telemetry.otlp_endpoint".to_owned(), URL.to_owned()));
    }
    faults
}

fn is_url(text: &str) -> bool {
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.host().is_some());
    uri.is_some_and(|uri| matches!(uri.scheme_str(), Some("http" | "https")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{GivenEnvironment, load_text};

    fn endpoints(telemetry: &str, variables: &[(&str, &str)]) -> Result<[String; 2], String> {
        let pairs = variables
            .iter()
            .map(|(name, value)| (format!("OTEL_EXPORTER_OTLP_{name}"), (*value).to_owned()));
        let environment: GivenEnvironment = pairs.collect();
        let loaded = load_text(&format!("telemetry: {{ {telemetry} }}"), None, &environment);
        let endpoints = loaded
            .map_err(|faults| faults.to_string())?
            .config
            .telemetry
            .endpoints;
        let shown = |endpoint: Option<OtlpEndpoint>| {
            endpoint
                .map(|endpoint| format!("{:?} {}", endpoint.protocol, endpoint.url))
                .unwrap_or_default()
        };
        Ok([shown(endpoints.traces), shown(endpoints.metrics)])
    }

    #[test]
    fn each_signal_is_sent_where_the_settings_and_the_standard_variables_have_it() {
        let same = |endpoint: &str| [endpoint.to_owned(), endpoint.to_owned()];
        let http = [
            "HttpProtobuf http://c:4318/v1/traces".to_owned(),
            "HttpProtobuf http://c:4318/v1/metrics".to_owned(),
        ];
        assert_eq!(endpoints("", &[]).unwrap(), same(""));
        assert_eq!(
            endpoints("", &[("PROTOCOL", "http/protobuf")]).unwrap(),
            same("")
        );
        assert_eq!(
            endpoints("", &[("ENDPOINT", "http://c:4317")]).unwrap(),
            same("Grpc http://c:4317")
        );
        let variables = [
            ("ENDPOINT", "http://c:4318/"),
            ("PROTOCOL", "http/protobuf"),
        ];
        assert_eq!(endpoints("", &variables).unwrap(), http);
        assert_eq!(
            endpoints(
                "otlp_endpoint: 'http://c:4318', otlp_protocol: http/protobuf",
                &[]
            )
            .unwrap(),
            http
        );
        // What is written counts above the variables.
        let others = [
            ("ENDPOINT", "http://d:1"),
            ("TRACES_ENDPOINT", "http://e:1"),
            ("TRACES_PROTOCOL", "http/protobuf"),
        ];
        let written = endpoints(
            "otlp_endpoint: 'http://c:4317', otlp_protocol: grpc",
            &others,
        )
        .unwrap();
        assert_eq!(written, same("Grpc http://c:4317"));
        // A signal's own variable is taken as it is.
        assert_eq!(
            endpoints("", &others).unwrap(),
            [
                "HttpProtobuf http://e:1".to_owned(),
                "Grpc http://d:1".to_owned()
            ]
        );
    }

    #[test]
    fn a_variable_that_cannot_be_used_is_named_with_its_setting() {
        let fault = endpoints(
            "",
            &[("ENDPOINT", "http://c:4318"), ("PROTOCOL", "http/json")],
        )
        .unwrap_err();
        assert!(
            fault.contains("telemetry.otlp_protocol: cannot be `http/json`"),
            "{fault}"
        );
        assert!(
            fault.contains(
                "OTEL_EXPORTER_OTLP_PROTOCOL has it; expected one of grpc, http/protobuf"
            ),
            "{fault}"
        );
        let fault = endpoints("", &[("METRICS_ENDPOINT", "collector")]).unwrap_err();
        assert!(
            fault.contains("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
            "{fault}"
        );
    }
}
