//! Tests of configuration faults, one for each guarantee.

use super::*;

/// Whole files and all faults that must be reported.
#[test]
fn every_fault_of_a_file_is_reported_at_once_with_its_place_and_a_correction() {
    for (text, expected) in [
        (
            "
servr: { listen: '127.0.0.1:1' }
server:
  listen: nowhere
  drain_timeout: 30
  max_message_bytes: 8 potatoes
  reflection: maybe
providers:
  p: { dialect: openai_chatt, base_url: 'http://example.com' }
targets:
  gpt: { provider: p, model: m }
  claude: { provider: anthropc, model: m }
routes:
  default: { targets: [gpt, claud], policy: pateint, deadline: 20m }
",
            "2:1: servr: unknown field; did you mean `server`?
4:11: server.listen: `nowhere` is no IP address or host name of this machine with a port; write it like 127.0.0.1:50051
5:18: server.drain_timeout: `30` has no unit; write ms, s, m, h or d after the number
6:22: server.max_message_bytes: `8 potatoes` is not one size
7:15: server.reflection: `maybe` is a text, where a boolean is expected
9:17: providers.p.dialect: unknown value `openai_chatt`; did you mean `openai_chat`?
9:41: providers.p.base_url: `http://example.com` would send keys and prompts in the clear; use https, or write allow_plaintext: true
12:23: targets.claude.provider: `anthropc` is no provider; did you mean `anthropic`?
14:29: routes.default.targets[1]: `claud` is no target; did you mean `claude`?
14:45: routes.default.policy: `pateint` is no policy; did you mean `patient`?
14:64: routes.default.deadline: `20m` does not fit: deadline must be at most max_deadline",
        ),
        (
            "
server: { listen: '0.0.0.0:5', admin_listen: '127.0.0.1:5', keys: [] }
providers: { s: { dialect: scripted, api_key: '' } }
targets: { t: { provider: s } }
routes: { a: { targets: [] }, b: { targets: [t, t] } }
telemetry: { sample_ratio: 1.5, log: { level: 'info,relight=loud' } }
journal: { store: oracle }
events: { capacity: 1 }
",
            "2:19: server.listen: `0.0.0.0:5` can be reached by others while callers are not authenticated; add server.keys or server.tls.client_ca_file, or write server.auth: none
2:46: server.admin_listen: `127.0.0.1:5` takes the same address as server.listen
3:47: providers.s.api_key: is empty
4:12: targets.t.model: is missing; write the model as the provider names it
5:16: routes.a.targets: must name at least one target
5:49: routes.b.targets[1]: `t` is named twice
6:28: telemetry.sample_ratio: `1.5` must be from 0 to 1
6:47: telemetry.log.level: `info,relight=loud` is no level of the log; expected one of off, error, warn, info, debug, trace
7:19: journal.store: `oracle` is no store; write memory, sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE
8:21: events.capacity: `1` must be from 16 to 16777216",
        ),
        (
            "server: { console: true }
providers: { s: { dialect: scripted } }
targets: { t: { provider: s, model: m, concurrency: { max: 300000 } } }
timers: { first_token: 2h, idle: 0ms }
policies:
  mine: { retry: { max_retries: 9, backof: {} }, injection: { template: 'no place' } }
routes: { default: { targets: [t], hedge: { max_share: 7 }, timers: { min_bytes_per_second: 0 } } }
operations: { executor: { max_retries: 6, policy: mine } }
budget: { capacity: -1 }
circuit: { open_base: 1ms }
classifier:
  rules:
    - { name: busy, class: overladed, when: { status: 42, message: '(' } }
    - { name: busy, class: overloaded, when: { code: 5.5 } }
    - { name: code, class: overloaded, when: { code: 1113 } }
    - { name: busy, class: overloaded, when: {} }
",
            "3:60: targets.t.concurrency.max: `300000` must be from 1 to 100000
4:24: timers.first_token: `2h` must be from 1ms to 1h
4:34: timers.idle: `0ms` must be from 1ms to 1h
6:33: policies.mine.retry.max_retries: `9` must be at most 5
6:36: policies.mine.retry.backof: unknown field; did you mean `backoff`?
6:73: policies.mine.injection.template: `no place` must hold {error} exactly once
7:56: routes.default.hedge.max_share: `7` must be from 0 to 1
7:93: routes.default.timers.min_bytes_per_second: `0` must be above 0; leave it out for no limit
8:40: operations.executor.max_retries: `6` must be at most 5
9:21: budget.capacity: `-1` must be from 1 to 1000000
10:23: circuit.open_base: `1ms` is 1ms; must be 10ms to 600s
13:28: classifier.rules[0].class: unknown value `overladed`; did you mean `overloaded`?
13:55: classifier.rules[0].when.status: `42` is no HTTP status; use 100 to 599
13:68: classifier.rules[0].when.message: `(` regex parse error: ( ^ error: unclosed group
14:15: classifier.rules[1].name: `busy` occurs twice
14:54: classifier.rules[1].when.code: `5.5` is a number, where a text, or a value with its unit such as 30s or 8MiB, is expected
16:15: classifier.rules[3].name: `busy` occurs twice
16:40: classifier.rules[3].when: holds no condition; the rule would swallow every failure",
        ),
    ] {
        let faults = faults_of(text, &[]);
        assert_eq!(faults, expected, "\n{faults}");
    }
}

#[test]
fn references_and_twice_written_keys_are_faults_like_any_other_and_hide_no_others() {
    let text = "
providers:
  p:
    dialect: openai_chat
    api_key: ${MISSING_KEY}
    base_url: ${BROKEN
targets:
  t: { provider: p, model: '${MODEL}', credential: other }
  t: { provider: p, model: n }
routes: { default: { targets: [t] }, }
admission: { max_in_flight: '${LIMIT}' }
";
    assert_eq!(
        faults_of(text, &[("LIMIT", "minus one"), ("MODEL", "m")]),
        "5:14: providers.p.api_key: refers to the environment variable MISSING_KEY, which is not set; set it, or write ${MISSING_KEY:-default}
6:15: providers.p.base_url: `${BROKEN` has a reference `${` without its `}`; write $${ for the characters
8:52: targets.t.credential: `other` is no credential of its provider
9:3: targets.t: is written twice
11:29: admission.max_in_flight: `${LIMIT}` is a text, where a whole number is expected"
    );
}

#[test]
fn what_was_taken_out_as_faulty_is_not_called_missing() {
    let text = "
providers: { p: { dialect: [no] , nonsense: 1 } }
targets: { t: { provider: p, model: '${MISSING}' } }
routes: { default: { targets: [[t]], deadline: 5 } }
default_route: default
server: { auth: api_key, keys: [ 5 ] }
";
    assert_eq!(
        faults_of(text, &[]),
        "2:19: providers.p.dialect: is no choice; write a name, or a map of one name and its settings
2:35: providers.p.nonsense: unknown field; expected one of dialect, base_url, api_key, api_key_file, api_keys, api_keys_file, family, headers, credentials, identity, api_key_header, chat, http, proxy, tls, allow_plaintext, allow_private_addresses, propagate_trace, region, script
3:37: targets.t.model: `${MISSING}` refers to the environment variable MISSING, which is not set; set it, or write ${MISSING:-default}
4:32: routes.default.targets[0]: is a list, where a text is expected
4:48: routes.default.deadline: `5` has no unit; write ms, s, m, h or d after the number
6:34: server.keys[0]: is a number, where a map is expected"
    );
}

#[test]
fn a_fault_shows_neither_a_secret_nor_what_came_from_the_environment() {
    let text = "
providers:
  p: { dialect: '${LEAK}', api_key: { value: sk-inner }, headers: { 'bad name': sk-header, ok: [sk-list] } }
  q: { dialect: openai_chat, api_key: 12345.678, base_url: 'https://user:sk-password@host' }
targets: { t: { provider: q, model: m } }
server: { keys: [ { tenant: a, sha256: sk-not-a-hash } ], drain_timeout: '${LEAK}', listen: '${LEAK}' }
journal: { store: 'mysql://user:sk-password@host' }
admission: { max_in_flight: '${LEAK}' }
";
    let faults = faults_of(text, &[("LEAK", "sk-environment")]);
    assert!(
        !faults.contains("sk-") && !faults.contains("12345"),
        "{faults}"
    );
    assert_eq!(faults.lines().count(), 11, "{faults}");
}

#[test]
fn a_fault_is_one_line_however_long_its_value_is() {
    let text = format!(
        "server:\n  listen: |\n    first\n    second\n  drain_timeout: {}\n",
        "9".repeat(90) + "x"
    );
    let expected = format!(
        "3:5: server.listen: `first…` is no IP address or host name of this machine with a port; write it like 127.0.0.1:50051\n\
         5:18: server.drain_timeout: `{}…` `x` is no unit of time; use ms, s, m, h or d",
        "9".repeat(80)
    );
    assert_eq!(faults_of(&text, &[]), expected);
}

#[test]
fn what_is_no_map_of_settings_is_one_fault() {
    for (text, expected) in [
        ("- a\n- b\n", "1:1: is no map of settings"),
        ("just text", "1:1: is no map of settings"),
        (
            "a: [1, 2\nb: 3",
            "2:2: is no YAML: illegal placement of ':' indicator",
        ),
        (
            "admission: { max_in_flight: 1 }\n---\nseed: 2\n",
            "3:1: holds more than one YAML document; write one",
        ),
    ] {
        assert_eq!(faults_of(text, &[]), expected, "{text}");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_reported_by_its_name() {
    let faults = load(Some(Path::new("/nowhere/relight.yaml")), &given(&[])).unwrap_err();
    assert_eq!(faults.to_string(), "/nowhere/relight.yaml: no such file");
    let folder = tempfile::tempdir().unwrap();
    let faults = load(Some(folder.path()), &given(&[])).unwrap_err();
    assert_eq!(
        faults.to_string(),
        format!("{}: is no regular file", folder.path().display())
    );
}

#[test]
fn addresses_that_others_can_reach_need_authentication_or_an_explicit_none() {
    let reachable = "can be reached by others";
    let hash = "0".repeat(64);
    for (server, open) in [
        ("listen: '0.0.0.0:1'".to_owned(), true),
        ("listen: '[::]:1'".to_owned(), true),
        ("listen: '10.0.0.1:1'".to_owned(), true),
        ("openai_front: { listen: '0.0.0.0:1' }".to_owned(), true),
        ("listen: '127.0.0.1:1'".to_owned(), false),
        ("listen: '[::1]:1'".to_owned(), false),
        // Health and metrics are for probes, which have no keys.
        ("admin_listen: '0.0.0.0:1'".to_owned(), false),
        ("listen: '0.0.0.0:1', auth: none".to_owned(), false),
        (
            format!("listen: '0.0.0.0:1', keys: [ {{ tenant: a, sha256: '{hash}' }} ]"),
            false,
        ),
    ] {
        let faults = faults_of(&format!("server: {{ {server} }}"), &[]);
        assert_eq!(faults.contains(reachable), open, "{server}: {faults}");
        assert!(open || faults.is_empty(), "{server}: {faults}");
    }
}

#[test]
fn base_urls_are_encrypted_or_local_and_lead_to_no_private_address_unless_it_is_meant() {
    for (provider, reason) in [
        ("base_url: 'https://api.example.com/v1'", ""),
        ("base_url: 'http://localhost:11434/v1'", ""),
        ("base_url: 'http://127.0.0.1:8000'", ""),
        ("base_url: 'http://[::1]:8000'", ""),
        ("base_url: 'http://vllm:8000', allow_plaintext: true", ""),
        (
            "base_url: 'http://10.0.0.1', allow_plaintext: true, allow_private_addresses: true",
            "",
        ),
        ("base_url: 'http://vllm:8000'", "in the clear"),
        ("base_url: 'https://192.168.0.1'", "is a private address"),
        (
            "base_url: 'https://169.254.169.254'",
            "is a private address",
        ),
        ("base_url: 'https://key@example.com'", "holds credentials"),
        ("base_url: 'api.example.com'", "is no URL"),
        ("base_url: 'ftp://example.com'", "is no URL"),
        ("base_url: ''", "is no URL"),
    ] {
        let text = format!(
            "providers: {{ p: {{ {provider} }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}"
        );
        let faults = faults_of(&text, &[]);
        assert!(
            if reason.is_empty() {
                faults.is_empty()
            } else {
                faults.contains(reason)
            },
            "{provider}: {faults}"
        );
    }
}

#[test]
fn background_is_refused_where_no_answer_can_be_read_on() {
    let text = "
providers: { p: { dialect: openai_chat, base_url: 'https://example.com' } }
targets: { t: { provider: p, model: m, capabilities: { background: true } } }
routes: { default: { targets: [t] } }
";
    assert_eq!(
        faults_of(text, &[]),
        "3:68: targets.t.capabilities.background: `true` is only for the dialect openai_responses"
    );
}

#[test]
fn a_proxy_or_certificate_that_cannot_be_used_is_a_fault_of_its_setting() {
    for (connection, fault) in [
        ("proxy: { url: 'http://proxy.example:3128' }", ""),
        (
            "proxy: { url: 'http://127.0.0.1:3128', credentials: 'user:hunter2' }",
            "",
        ),
        (
            "proxy: { url: 'http://10.0.0.1:3128' }",
            "p.proxy.url: `http://10.0.0.1:3128` is a private address",
        ),
        (
            "proxy: { url: 'http://10.0.0.1:3128' }, allow_private_addresses: true",
            "",
        ),
        ("proxy: {}", "p.proxy.url: is missing"),
        (
            "proxy: { url: 'proxy.example:3128' }",
            "is no proxy; write a scheme, host and port",
        ),
        ("proxy: { url: 'https://proxy.example' }", "is no proxy"),
        ("proxy: { url: 'http://proxy.example/path' }", "is no proxy"),
        (
            "proxy: { url: 'http://user:hunter2@proxy.example' }",
            "p.proxy.url: holds credentials",
        ),
        (
            "proxy: { url: 'http://proxy.example', credentials: hunter2 }",
            "p.proxy.credentials: must be of the form",
        ),
        (
            "tls: { ca_file: /does/not/exist }",
            "p.tls.ca_file: `/does/not/exist` cannot be read",
        ),
        (
            "tls: { ca_file: Cargo.toml }",
            "p.tls.ca_file: `Cargo.toml` holds no certificate",
        ),
        (
            "tls: { cert_file: Cargo.toml }",
            "p.tls.cert_file: `Cargo.toml` has no effect without key_file",
        ),
        (
            "tls: { key_file: Cargo.toml }",
            "p.tls.key_file: `Cargo.toml` has no effect without cert_file",
        ),
        (
            "tls: { cert_file: Cargo.toml, key_file: Cargo.toml }",
            "p.tls.cert_file: `Cargo.toml` holds no certificate",
        ),
    ] {
        let provider = format!("base_url: 'https://api.example.com/v1', {connection}");
        let text = format!(
            "providers: {{ p: {{ {provider} }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}"
        );
        let faults = faults_of(&text, &[]);
        let is_placed = fault.is_empty() || faults.starts_with("1:");
        let is_expected = if fault.is_empty() {
            faults.is_empty()
        } else {
            faults.contains(fault)
        };
        assert!(is_placed && is_expected, "{connection}: {faults}");
        assert!(!faults.contains("hunter2"), "{connection}: {faults}");
    }
}

#[test]
fn prices_are_not_negative_and_the_currency_has_three_letters() {
    let text = "
currency: dollars
providers: { p: { dialect: openai_chat, base_url: 'https://example.com' } }
targets: { t: { provider: p, model: m, price: { input_per_million: -1, output_per_million: 15 } } }
";
    assert_eq!(
        faults_of(text, &[]),
        "2:11: currency: `dollars` is no currency; write its three letters, such as USD
4:68: targets.t.price.input_per_million: `-1` must be from 0 to 1000000"
    );
}
