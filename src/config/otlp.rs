//! Destinations of traces and metrics: what is written, and the standard variables of OpenTelemetry
//! if nothing is.

use http::{HeaderName, HeaderValue};

use super::{
    Secret,
    environment::Environment,
    fault::Fault,
    observe::{OtlpEndpoint, OtlpEndpoints, OtlpProtocol, TelemetryConfig},
    url::http_url,
};

/// Form of a destination.
pub(super) const EXAMPLE: &str = "http://localhost:4317";

/// Fills in the name of the service, the destination of each signal and the secrets that the
/// variables hold. Returns the faults of the variables; what is written is checked elsewhere.
pub(super) fn complete(
    telemetry: &mut TelemetryConfig,
    environment: &dyn Environment,
) -> Vec<Fault> {
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
    let url_of = |name: &str, faults: &mut Vec<Fault>| {
        let url = var(name).filter(|_| !is_written)?;
        if let Err(fault) = http_url(&url) {
            faults.push(Fault::of_variable(name, fault.reason(EXAMPLE)));
        }
        Some(url)
    };
    let shared = url_of("OTEL_EXPORTER_OTLP_ENDPOINT", &mut faults);
    telemetry.otlp_endpoint = telemetry.otlp_endpoint.take().or(shared);
    let mut endpoint_of = |signal: &str| {
        let variable = |what: &str| format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.to_uppercase());
        let url = url_of(&variable("ENDPOINT"), &mut faults);
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
                let reason = format!("cannot be `{value}`; expected one of grpc, http/protobuf");
                faults.push(Fault::of_variable(name, reason));
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
    for name in ["", "TRACES_", "METRICS_"].map(|of| format!("OTEL_EXPORTER_OTLP_{of}HEADERS")) {
        let fields = var(&name).unwrap_or_default();
        match header_values(&fields) {
            Some(values) => telemetry.header_values.extend(values),
            None => faults.push(Fault::of_variable(
                name,
                "is no list of NAME=VALUE, separated by commas, of which each is a header field",
            )),
        }
    }
    faults
}

/// Returns the values of header fields as a variable lists them; `None` if one of them is none.
fn header_values(fields: &str) -> Option<Vec<Secret>> {
    let fields = fields.split(',').map(str::trim);
    let value = |field: &str| {
        let (name, value) = field.split_once('=')?;
        let value = decoded(value.trim()).unwrap_or_else(|| value.trim().to_owned());
        HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        HeaderValue::from_str(&value).ok()?;
        Some(Secret::new(value))
    };
    fields
        .filter(|field| !field.is_empty())
        .map(value)
        .collect()
}

/// Returns a text without its percent-encoding; `None` if that is none.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
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
    fn a_variable_that_cannot_be_used_is_named() {
        let fault = endpoints(
            "",
            &[("ENDPOINT", "http://c:4318"), ("PROTOCOL", "http/json")],
        )
        .unwrap_err();
        assert!(
            fault.contains("OTEL_EXPORTER_OTLP_PROTOCOL: cannot be `http/json`"),
            "{fault}"
        );
        let fault = endpoints("", &[("METRICS_ENDPOINT", "collector")]).unwrap_err();
        assert!(
            fault.contains("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"),
            "{fault}"
        );
    }
}
