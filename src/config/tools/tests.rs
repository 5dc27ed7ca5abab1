//! What is written under `tools`, what is wrong with it, and what follows from it.

use super::*;
use crate::config::{Config, GivenEnvironment, load_text};
use crate::policy::tool_recovery::chunk::ChunkBy;

const TOOLS: &str = r#"
tools:
  servers:
    strava: { url: "https://strava.example/mcp", headers: { x-team: "team-secret" }, api_key: "${TOKEN}", trust_annotations: true }
    files: { command: npx, args: [-y, server-files], env: { LEVEL: child-secret } }
    crm:
      http:
        base_url: https://crm.example/api
        tools:
          get_customer: { description: One customer, method: GET, path: "/customers/{id}" }
  tools:
    strava/get_activities:
      read_only: true
      timeout: 30s
      redact: [/athlete/email]
      recovery: { max_retries: 1 }
      chunk: [{ from: after, to: before, end_included: false }, { argument: ids }]
    get_customer: { idempotent: true }
  groups: { activities: [strava/get_activities, files/list_activities], all: [files/read, strava/get_activities] }
  recovery: { max_retries: 3, check_names: false }
"#;

fn loaded(text: &str) -> Config {
    let environment = GivenEnvironment::from(
        [
            ("TOKEN", "to-ken"),
            ("PATH", "/bin"),
            ("HOME", "/root"),
            ("SECRET", "s"),
        ]
        .map(|(n, v)| (n.into(), v.into())),
    );
    load_text(text, None, &environment).unwrap().config
}

fn faults(tools: &str) -> String {
    load_text(&format!("tools: {tools}\n"), None, &GivenEnvironment::new())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_tool_is_known_by_its_server_and_name_or_by_its_name_alone() {
    let tools = loaded(TOOLS).tools;
    assert!(tools.effects("strava", "get_activities").trust_annotations);
    assert_eq!(
        tools.effects("strava", "get_activities").read_only,
        Some(true)
    );
    assert_eq!(tools.effects("crm", "get_customer").idempotent, Some(true));
    assert_eq!(
        tools.effects("files", "get_customer").idempotent,
        Some(true)
    );
    assert_eq!(tools.effects("files", "read").idempotent, None);
    assert_eq!(
        tools.timeout("strava", "get_activities"),
        Duration::from_secs(30)
    );
    assert_eq!(tools.timeout("files", "read"), Duration::from_mins(1));
    assert_eq!(tools.redact("strava", "get_activities"), ["/athlete/email"]);
    let recovery = tools.recovery("strava", "get_activities");
    assert_eq!(
        (recovery.max_retries, recovery.check_names),
        (1, false),
        "it inherits what it does not set"
    );
    let rules = tools.chunk_rules("strava", "get_activities");
    let kinds: Vec<_> = rules.iter().map(|rule| rule.by.clone()).collect();
    let dates = ChunkBy::Dates {
        from: "after".to_owned(),
        to: "before".to_owned(),
        end_included: Some(false),
    };
    let argument = "ids".to_owned();
    assert_eq!(kinds, [dates, ChunkBy::List { argument }]);
}

#[test]
fn the_other_tools_of_its_groups_may_stand_in_for_a_tool() {
    let tools = loaded(TOOLS).tools;
    assert_eq!(
        tools.alternatives("strava", "get_activities"),
        [("files", "list_activities"), ("files", "read")]
    );
    assert_eq!(
        tools.alternatives("files", "list_activities"),
        [("strava", "get_activities")]
    );
    assert!(tools.alternatives("files", "write").is_empty());
}

#[test]
fn a_child_gets_path_and_home_and_what_is_written_and_nothing_else() {
    let tools = loaded(TOOLS).tools;
    let env = tools.servers["files"].whole_env();
    let expected = [
        ("HOME", "/root"),
        ("LEVEL", "child-secret"),
        ("PATH", "/bin"),
    ];
    assert_eq!(
        env.iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn a_key_is_sent_as_a_bearer_token_and_never_shown() {
    let config = loaded(TOOLS);
    assert_eq!(
        config.tools.servers["strava"].all_headers()["authorization"],
        "Bearer to-ken"
    );
    let shown = crate::config::show(&config);
    for secret in ["to-ken", "team-secret", "child-secret"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn a_key_is_read_from_its_file_and_a_change_of_that_is_one_of_the_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relight.yaml");
    let text = "tools: { servers: { a: { url: 'https://x.example/mcp', api_key_file: key } } }";
    let load = |key: &str| {
        std::fs::write(folder.path().join("key"), key).unwrap();
        load_text(text, Some(&file), &GivenEnvironment::new()).unwrap()
    };
    let one = load("one\n");
    let two = load("two\n");
    assert_eq!(
        one.config.tools.servers["a"].all_headers()["authorization"],
        "Bearer one"
    );
    assert_eq!(
        two.config.tools.servers["a"].all_headers()["authorization"],
        "Bearer two"
    );
    assert_ne!(one.fingerprint, two.fingerprint);
}

/// Sections `tools` with a fault, and the words that report it.
const FAULTY: &[(&str, &str)] = &[
    (
        "{ servers: { a: {} } }",
        "tools.servers.a: must have one of url, command and http",
    ),
    (
        "{ servers: { a: { url: 'https://x/mcp', command: y } } }",
        "tools.servers.a.command: `y` is given beside url",
    ),
    (
        "{ servers: { a: { url: 'ftp://x' } } }",
        "tools.servers.a.url: `ftp://x` is no URL",
    ),
    (
        "{ servers: { a: { url: 'http://x.example/mcp' } } }",
        "would send keys and prompts in the clear",
    ),
    (
        "{ servers: { a: { url: 'https://10.1.2.3/mcp' } } }",
        "is a private address",
    ),
    (
        "{ servers: { a: { command: x, headers: { b: c } } } }",
        "tools.servers.a.headers: has no effect without url or http",
    ),
    (
        "{ servers: { a: { url: 'https://x/mcp', args: [b] } } }",
        "tools.servers.a.args: has no effect without command",
    ),
    (
        "{ servers: { a/b: { command: x } } }",
        "is no name of a tool server",
    ),
    (
        "{ servers: { a: { command: x, comand: y } } }",
        "unknown field; did you mean `command`?",
    ),
    (
        "{ servers: { a: { command: x, start_timeout: 1ms } } }",
        "must be from 100ms to 10m",
    ),
    (
        "{ servers: { a: { command: x, env: { \"A=B\": c } } } }",
        "is no variable that a process can have",
    ),
    (
        "{ servers: { a: { http: { base_url: 'https://x' } } } }",
        "tools.servers.a.http.tools: is missing",
    ),
    (
        "{ servers: { a: { http: { base_url: 'https://x', tools: { t: { path: p } } } } } }",
        "is no path",
    ),
    (
        "{ servers: { a: { http: { base_url: 'https://x', tools: { t: { path: /p, input_schema: { type: 7 } } } } } } }",
        "tools.servers.a.http.tools.t.input_schema: does not compile",
    ),
    (
        "{ servers: { files: { command: x } }, tools: { file/read: {} } }",
        "is no tool server; did you mean `files`?",
    ),
    (
        "{ servers: { files: { command: x } }, groups: { g: [files/a] } }",
        "must name at least two tools",
    ),
    (
        "{ servers: { files: { command: x } }, groups: { g: [files/a, b] } }",
        "names no server",
    ),
    (
        "{ servers: { files: { command: x } }, groups: { g: [files/a, files/a] } }",
        "is named twice",
    ),
    (
        "{ tools: { t: { read_only: true, destructive: true } } }",
        "tools.tools.t.destructive: `true` contradicts",
    ),
    (
        "{ tools: { t: { redact: [email] } } }",
        "is no JSON pointer",
    ),
    (
        "{ tools: { t: { timeout: 2h } } }",
        "must be from 100ms to 1h",
    ),
    (
        "{ tools: { t: { chunk: [{ from: a }] } } }",
        "tools.tools.t.chunk[0].to: is missing",
    ),
    (
        "{ tools: { t: { chunk: [{ argument: a, page: b }] } } }",
        "belongs to another kind of rule",
    ),
    (
        "{ tools: { t: { chunk: [{ limit: a }] } } }",
        "tools.tools.t.chunk[0].offset",
    ),
    (
        "{ recovery: { max_retries: 9 } }",
        "tools.recovery.max_retries: `9` must be at most 5",
    ),
    (
        "{ limits: { max_reply_bytes: 1KiB } }",
        "must be from 4KiB to 1GiB",
    ),
    (
        "{ mcp_front: { listen: '0.0.0.0:8092' } }",
        "can be reached by others",
    ),
];

#[test]
fn each_fault_names_its_place_and_what_to_do() {
    for (tools, expected) in FAULTY {
        let found = faults(tools);
        assert!(found.contains(expected), "{tools}\n{found}");
    }
}
