//! The check passes just what a server starts with.

use super::*;

/// Returns the faults of a provider with these settings.
fn of_provider(settings: &str) -> String {
    let text = format!(
        "providers: {{ p: {{ {settings} }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}"
    );
    faults_of(&text, &[])
}

#[test]
fn a_provider_without_a_place_of_its_own_is_refused() {
    for (settings, fault) in [
        ("dialect: bedrock", "p.region: is missing"),
        ("dialect: bedrock, region: eu-central-1", ""),
        (
            "dialect: bedrock, base_url: 'https://bedrock-runtime.eu-west-1.amazonaws.com'",
            "",
        ),
        (
            "identity: { cloud: azure }",
            "p.base_url: is missing; the dialect's own place is not of the cloud azure",
        ),
        (
            "dialect: anthropic, identity: { cloud: google }",
            "p.base_url: is missing; the dialect's own place is not of the cloud google",
        ),
        ("dialect: gemini, identity: { cloud: google }", ""),
        (
            "identity: { cloud: azure }, base_url: 'https://a.openai.azure.com/openai/v1'",
            "",
        ),
    ] {
        let faults = of_provider(settings);
        let is_expected = faults.contains(fault) && faults.is_empty() == fault.is_empty();
        assert!(is_expected, "{settings}: {faults}");
    }
}

#[test]
fn a_port_is_a_number_from_1_to_65535_in_every_address() {
    for (text, is_valid) in [
        ("providers: { p: { base_url: 'https://h:99999' } }", false),
        ("providers: { p: { base_url: 'https://h:0' } }", false),
        (
            "providers: { p: { base_url: 'http://[::1]:99999' } }",
            false,
        ),
        ("providers: { p: { base_url: 'http://[::1]:65535' } }", true),
        ("providers: { p: { base_url: 'http://[::1]' } }", true),
        ("providers: { p: { base_url: 'https://h' } }", true),
        (
            "providers: { p: { proxy: { url: 'http://h:99999' } } }",
            false,
        ),
        (
            "tools: { servers: { s: { url: 'https://h:0/mcp' } } }",
            false,
        ),
        ("telemetry: { otlp_endpoint: 'http://h:99999' }", false),
        ("telemetry: { otlp_endpoint: 'http://h:0' }", false),
        (
            "server: { jwt: { issuer: i, audience: a, jwks_url: 'https://h:99999' } }",
            false,
        ),
        ("fleet: { advertise: 'h:99999' }", false),
        ("fleet: { advertise: 'h:0' }", false),
        ("fleet: { store: 'postgres://u:p@h:99999/db' }", false),
        ("fleet: { store: 'redis://:p@h:0' }", false),
        ("fleet: { store: 'redis://:p@h:99999' }", false),
        ("fleet: { store: 'redis+sentinel://:p@h:0/main' }", false),
        ("journal: { store: 'postgres://u:p@h:99999/db' }", false),
        ("journal: { store: 'postgres://u:p@h:0/db' }", false),
        ("journal: { store: 'postgres://u:p@h/db?port=0' }", false),
        ("journal: { store: 'postgres://u:p@h:5433/db' }", true),
    ] {
        let targets = if text.starts_with("providers") {
            "\ntargets: { t: { provider: p, model: m } }"
        } else {
            ""
        };
        let faults = faults_of(&format!("{text}{targets}"), &[]);
        assert_eq!(faults.is_empty(), is_valid, "{text}: {faults}");
        let named = faults.to_lowercase().contains("port");
        assert!(is_valid || named, "{text}: {faults}");
    }
}

#[test]
fn a_database_is_refused_for_what_its_driver_refuses() {
    let at = "is no URL of a PostgreSQL database: unknown value \"bogus\" for `ssl_mode`";
    for section in ["journal", "fleet"] {
        let text = format!("{section}: {{ store: 'postgres://u:pw@h/db?sslmode=bogus' }}");
        let faults = faults_of(&text, &[]);
        assert!(faults.contains(at) && !faults.contains("pw"), "{faults}");
        let text = format!("{section}: {{ store: 'postgres://u:pw@h/db?sslmode=require' }}");
        assert_eq!(faults_of(&text, &[]), "");
    }
}

#[test]
fn header_fields_that_http_sets_by_itself_or_that_are_set_twice_are_refused() {
    for (settings, fault) in [
        ("headers: { content-length: '5' }", "is set by HTTP itself"),
        ("headers: { Host: h }", "is set by HTTP itself"),
        (
            "headers: { transfer-encoding: chunked }",
            "is set by HTTP itself",
        ),
        ("headers: { connection: close }", "is set by HTTP itself"),
        ("headers: { x-a: '1', X-A: '2' }", "is written twice"),
        (
            "api_key: k, headers: { Authorization: Bearer k }",
            "is given beside api_key; keep one of them",
        ),
        (
            "api_keys: [k, l], headers: { authorization: Bearer k }",
            "is given beside api_keys; keep one of them",
        ),
        (
            "api_key: k, api_key_header: api_key, headers: { api-key: k }",
            "is given beside api_key; keep one of them",
        ),
        ("headers: { authorization: Bearer k }", ""),
        (
            "api_key: k, api_key_header: none, headers: { authorization: Bearer k }",
            "",
        ),
    ] {
        let faults = of_provider(settings);
        let is_expected = faults.contains(fault) && faults.is_empty() == fault.is_empty();
        assert!(is_expected, "{settings}: {faults}");
    }
    for text in [
        "tools: { servers: { s: { url: 'https://h/mcp', headers: { content-length: '5' } } } }",
        "tools: { servers: { s: { url: 'https://h/mcp', api_key: k, headers: { Authorization: a } } } }",
        "telemetry: { otlp_headers: { te: trailers } }",
        "telemetry: { otlp_headers: { 'a b': c } }",
        "telemetry: { otlp_headers: { a: \"hunter2\\n\" } }",
    ] {
        let faults = faults_of(text, &[]);
        assert!(faults.contains("eaders."), "{text}: {faults}");
        assert!(!faults.contains("hunter2"), "{faults}");
    }
}

#[test]
fn a_threshold_that_no_timer_lets_a_first_token_reach_is_refused() {
    let with = |circuit: &str, own: &str, more: &str| {
        faults_of(
            &format!(
                "providers: {{ s: {{ dialect: scripted }} }}
targets: {{ t: {{ provider: s, model: m{own} }}, u: {{ provider: s, model: n }} }}
routes: {{ default: {{ targets: [t, u] }} }}
circuit: {{ {circuit} }}
{more}"
            ),
            &[],
        )
    };
    assert_eq!(
        with("slow_threshold: 31s", "", ""),
        "4:28: circuit.slow_threshold: `31s` never acts: no target waits for longer than 30s for a first token"
    );
    assert_eq!(with("slow_threshold: 30s", "", ""), "");
    assert_eq!(
        with("slow_threshold: 1m", "", "timers: { first_token: 2m }"),
        ""
    );
    assert_eq!(
        with("", ", circuit: { slow_threshold: 40s }", ""),
        "2:67: targets.t.circuit.slow_threshold: `40s` never acts: the target waits for no longer than 30s for a first token"
    );
    // A threshold that nobody wrote follows shorter timers by itself.
    assert_eq!(with("", "", "timers: { first_token: 1s }"), "");
}

#[test]
fn a_schema_that_is_nested_too_deep_is_refused() {
    let schema = |depth: usize| {
        let open = "{ properties: { a: ".repeat(depth / 2);
        format!("{open}{{}}{}", " } }".repeat(depth / 2))
    };
    let with = |depth: usize| {
        faults_of(
            &format!(
                "tools: {{ servers: {{ s: {{ http: {{ base_url: 'https://h', tools: {{ t: {{ path: /t, input_schema: {} }} }} }} }} }} }}",
                schema(depth)
            ),
            &[],
        )
    };
    assert_eq!(with(30), "");
    let faults = with(40);
    assert!(
        faults.ends_with("input_schema: is nested deeper than 32 levels"),
        "{faults}"
    );
}

#[test]
fn a_fault_of_a_variable_names_it_and_not_the_file() {
    let path = Path::new("relight.yaml");
    let faults = |text: &str, variables: &[(&str, &str)]| {
        load_text(text, Some(path), &given(variables))
            .unwrap_err()
            .to_string()
    };
    for (name, value, reason) in [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "localhost:4317",
            "is no URL; write it like http://localhost:4317",
        ),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://h:99999",
            "has no port from 1 to 65535",
        ),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "http/json",
            "cannot be `http/json`; expected one of grpc, http/protobuf",
        ),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "a=b,hunter2hunter2",
            "is no list of NAME=VALUE",
        ),
        (
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
            "a=hunter2hunter2%0a",
            "is no list of NAME=VALUE",
        ),
    ] {
        let fault = faults("{}", &[(name, value)]);
        let expected = format!("{name}: {reason}");
        assert!(fault.starts_with(&expected), "{fault}");
        assert!(!fault.contains("hunter2"), "{fault}");
    }
    let text = "targets: { t: { provider: anthropic, model: m } }";
    let fault = faults(text, &[("ANTHROPIC_API_KEY", "a\nb")]);
    assert!(
        fault.starts_with("ANTHROPIC_API_KEY: holds characters that no header field takes"),
        "{fault}"
    );
    let fault = faults("{}", &[("POD_IP", "http://a/b")]);
    assert!(fault.starts_with("POD_IP: is no address"), "{fault}");
    // What is written is a fault of the file.
    let fault = faults("telemetry: { otlp_endpoint: h }", &[]);
    assert!(fault.starts_with("relight.yaml:1:"), "{fault}");
}

#[test]
fn headers_of_the_standard_variables_are_secrets() {
    let environment = given(&[("OTEL_EXPORTER_OTLP_HEADERS", "a=b, api-key=hunter2%20two")]);
    let config = load_text("{}", None, &environment).unwrap().config;
    assert!(config.secret_values().contains(&"hunter2 two"));
}
