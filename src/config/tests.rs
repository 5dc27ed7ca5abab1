//! Tests of `config`, one for each guarantee.

use std::{fs, path::Path};

use super::*;

mod effective;
mod faults;
mod hidden;
mod startable;

/// Returns the faults of a text, one a line; empty if there are none.
fn faults_of(text: &str, environment: &[(&str, &str)]) -> String {
    match load_text(text, None, &given(environment)) {
        Ok(_) => String::new(),
        Err(faults) => faults.to_string(),
    }
}

fn loaded(text: &str, environment: &[(&str, &str)]) -> Config {
    load_text(text, None, &given(environment))
        .unwrap_or_else(|faults| panic!("{faults}"))
        .config
}

fn given(environment: &[(&str, &str)]) -> GivenEnvironment {
    environment
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn without_a_file_and_without_keys_the_scripted_provider_answers_on_the_default_route() {
    let config = load(None, &given(&[])).unwrap().config;
    assert_eq!(show(&config), show(&Config::default()));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:50051");
    assert_eq!(
        config.routes[&RouteName::from("default")].targets,
        [TargetId::from("scripted")]
    );
    assert_eq!(
        config.targets[&TargetId::from("scripted")].provider,
        "scripted"
    );
    assert_eq!(
        config.providers["scripted"].dialect,
        crate::domain::target::Dialect::Scripted
    );
    assert_eq!(config.default_route, Some(RouteName::from("default")));
    assert_eq!(
        config.policies.keys().collect::<Vec<_>>(),
        ["agent", "literal", "none", "patient", "standard", "steady"]
    );
}

#[test]
fn without_a_file_providers_are_found_by_their_well_known_variables_in_the_order_of_preference() {
    let environment = [
        ("GROQ_API_KEY", "g"),
        ("OPENAI_API_KEY", "o\n"),
        ("OPENAI_MODEL", "gpt-x"),
        ("XAI_API_KEY", ""),
    ];
    let found = load(None, &given(&environment)).unwrap();
    assert_eq!(found.found, ["OPENAI_API_KEY", "GROQ_API_KEY"]);
    let config = found.config;
    let route = &config.routes[&RouteName::from("default")];
    assert_eq!(
        route.targets,
        [TargetId::from("openai"), TargetId::from("groq")]
    );
    assert_eq!(config.targets[&TargetId::from("openai")].model, "gpt-x");
    assert_eq!(
        config.providers["openai"].key("default").unwrap().expose(),
        "o"
    );
    assert_eq!(
        config.providers["groq"].endpoint(),
        "https://api.groq.com/openai/v1"
    );
    assert!(!config.providers.contains_key("scripted"));
}

#[test]
fn a_target_may_name_a_well_known_provider_whose_key_is_set() {
    let text = "targets: { best: { provider: anthropic, model: m }, next: { provider: openai, model: n } }";
    let config = loaded(text, &[("ANTHROPIC_API_KEY", "a"), ("OPENAI_API_KEY", "o")]);
    assert_eq!(
        config.providers.keys().collect::<Vec<_>>(),
        ["anthropic", "openai"]
    );
    // In the order of the file, not of the alphabet.
    let text =
        "targets: { z: { provider: anthropic, model: m }, a: { provider: anthropic, model: n } }";
    let config = loaded(text, &[("ANTHROPIC_API_KEY", "a")]);
    assert_eq!(
        config.routes[&RouteName::from("default")].targets,
        [TargetId::from("z"), TargetId::from("a")]
    );
}

#[test]
fn values_come_from_the_environment_as_the_types_that_are_expected() {
    let text = "
server: { listen: '${HOST:-127.0.0.1}:${PORT}', reflection: '${REFLECTION}' }
admission: { max_in_flight: '${LIMIT}' }
telemetry:
  sample_ratio: ${RATIO:-0.5}
  resource: { name: '$${literal}' }
";
    let config = loaded(
        text,
        &[("PORT", "7001"), ("REFLECTION", "false"), ("LIMIT", "42")],
    );
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:7001");
    assert!(!config.server.reflection);
    assert_eq!(config.admission.max_in_flight, 42);
    assert!((config.telemetry.sample_ratio - 0.5).abs() < f64::EPSILON);
    assert_eq!(config.telemetry.resource["name"], "${literal}");
}

#[test]
fn secrets_are_shown_by_no_rendering_of_a_configuration() {
    let text = "
providers:
  p:
    dialect: openai_chat
    api_key: ${KEY}
    headers: { x-team: sk-header }
    credentials: { other: { api_key: sk-literal } }
targets: { t: { provider: p, model: m, credential: other } }
journal: { store: 'postgres://user:sk-password@db/relight' }
telemetry: { otlp_endpoint: 'http://localhost:4317', otlp_headers: { authorization: sk-otlp } }
";
    let config = loaded(text, &[("KEY", "sk-from-env")]);
    assert_eq!(
        config.providers["p"].key("default").unwrap().expose(),
        "sk-from-env"
    );
    assert_eq!(
        config.providers["p"].key("other").unwrap().expose(),
        "sk-literal"
    );
    for rendering in [
        show(&config),
        format!("{config:?}"),
        serde_json::to_string(&config).unwrap(),
    ] {
        assert!(!rendering.contains("sk-"), "{rendering}");
    }
    assert!(show(&config).contains("[redacted]"));
}

#[test]
fn keys_are_read_from_files_relative_to_the_configuration() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("key"), "sk-file\n").unwrap();
    let file = directory.path().join("relight.yaml");
    fs::write(
        &file,
        "
providers:
  p: { dialect: openai_chat, api_key_file: key }
  q: { dialect: openai_chat, api_key_file: key, api_key: other }
  r: { dialect: openai_chat, api_key_file: missing }
targets: { t: { provider: p, model: m } }
",
    )
    .unwrap();
    let faults = load(Some(&file), &given(&[]))
        .unwrap_err()
        .to_string()
        .replace(&file.display().to_string(), "F");
    assert_eq!(
        faults,
        "F:4:44: providers.q.api_key_file: `key` is given beside api_key; keep one of them\n\
         F:5:44: providers.r.api_key_file: `missing` cannot be read: No such file or directory (os error 2)"
    );
    fs::write(
        &file,
        "providers: { p: { api_key_file: key } }\ntargets: { t: { provider: p, model: m } }",
    )
    .unwrap();
    let loaded = load(Some(&file), &given(&[])).unwrap();
    assert_eq!(
        loaded.config.providers["p"]
            .key("default")
            .unwrap()
            .expose(),
        "sk-file"
    );
    assert_eq!(loaded.named_files.len(), 1);
    assert_eq!(loaded.named_files[0].file, directory.path().join("key"));
    assert_eq!(loaded.named_files[0].setting, "providers.p.api_key_file");
}

#[test]
fn the_fingerprint_changes_with_the_contents_of_named_files_and_not_with_the_time() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relight.yaml");
    let key = directory.path().join("key");
    fs::write(
        &file,
        "providers: { p: { api_key_file: key } }\ntargets: { t: { provider: p, model: m } }",
    )
    .unwrap();
    let fingerprint = |text: &str| {
        fs::write(&key, text).unwrap();
        load(Some(&file), &given(&[])).unwrap().fingerprint
    };
    assert_eq!(fingerprint("one"), fingerprint("one"));
    assert_ne!(fingerprint("one"), fingerprint("two"));
}

#[test]
fn what_is_shown_can_be_loaded_again() {
    let shown = show(&Config::default());
    let again = loaded(&shown, &[]);
    assert_eq!(show(&again), shown);
}

#[test]
fn the_example_is_valid_and_its_settings_are_in_force() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/relight.yaml");
    let environment = given(&[("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")]);
    let config = load(Some(&path), &environment)
        .unwrap_or_else(|faults| panic!("{faults}"))
        .config;
    assert_eq!(config.routes.len(), 2);
    assert_eq!(config.policies["support"].retry.max_retries, 3);
}

#[test]
fn the_schema_describes_every_setting_and_knows_the_same_dialects() {
    let schema = schema();
    let bare = serde_json::to_value(Config::bare()).unwrap();
    for section in bare.as_object().unwrap().keys() {
        let described = &schema["properties"][section]["description"];
        assert!(
            described.as_str().is_some_and(|text| !text.is_empty()),
            "{section}"
        );
    }
    assert_eq!(schema["additionalProperties"], false);
    let dialects = &schema["$defs"]["ProviderConfig"]["properties"]["dialect"].to_string();
    for dialect in [
        "openai_chat",
        "openai_responses",
        "anthropic",
        "gemini",
        "bedrock",
        "scripted",
    ] {
        assert!(dialects.contains(&format!("\"{dialect}\"")), "{dialects}");
        let text = format!(
            "providers: {{ p: {{ dialect: {dialect}, region: eu-central-1 }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}"
        );
        assert_eq!(loaded(&text, &[]).providers["p"].dialect.as_str(), dialect);
    }
}

#[test]
fn the_published_schema_accepts_the_default_and_the_example() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let default = serde_json::to_value(Config::default()).unwrap();
    assert_eq!(
        validator
            .iter_errors(&default)
            .map(|error| error.to_string())
            .collect::<Vec<_>>(),
        [""; 0]
    );
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/relight.yaml"))
            .unwrap();
    let example: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        validator
            .iter_errors(&example)
            .map(|error| error.to_string())
            .collect::<Vec<_>>(),
        [""; 0]
    );
}
