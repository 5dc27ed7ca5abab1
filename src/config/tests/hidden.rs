//! Faults show no secret, whatever is wrong with it.

use super::*;

/// Text of which a fault may show nothing.
const SECRET: &str = "hunter2hunter2";

/// Returns the paths of all secrets in the schema, with a name for each place of a map and a number
/// for each of a list.
fn secret_paths() -> Vec<String> {
    let schema = schema();
    let mut found = Vec::new();
    collect(&schema, &schema, "", &mut Vec::new(), &mut found);
    found
}

fn collect<'s>(
    schema: &'s serde_json::Value,
    root: &'s serde_json::Value,
    path: &str,
    open: &mut Vec<&'s str>,
    found: &mut Vec<String>,
) {
    if schema["writeOnly"] == true {
        found.push(path.to_owned());
    }
    if let Some(name) = schema["$ref"].as_str() {
        if !open.contains(&name) {
            open.push(name);
            let target = root.pointer(name.trim_start_matches('#')).unwrap();
            collect(target, root, path, open, found);
            open.pop();
        }
        return;
    }
    let join = |name: &str| tree::join(path, name);
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        collect(member, root, &join(name), open, found);
    }
    if schema["additionalProperties"].is_object() {
        let members = &schema["additionalProperties"];
        collect(members, root, &join("x"), open, found);
    }
    if schema["items"].is_object() {
        collect(&schema["items"], root, &format!("{path}[0]"), open, found);
    }
    for kind in ["anyOf", "oneOf", "allOf"] {
        for one in schema[kind].as_array().into_iter().flatten() {
            collect(one, root, path, open, found);
        }
    }
}

#[test]
fn every_setting_that_is_a_secret_is_shown_by_no_fault() {
    let paths = secret_paths();
    assert!(paths.len() >= 12, "{paths:?}");
    for path in paths {
        let node = tree::Node {
            value: tree::Value::Text(SECRET.to_owned()),
            ..tree::Node::unwritten(&path, serde_json::Value::Null)
        };
        assert_eq!(node.shown(), None, "{path}");
    }
}

#[test]
fn a_secret_in_a_wrong_place_or_form_is_not_shown() {
    for text in [
        "providers: { p: hunter2hunter2 }",
        "providers: hunter2hunter2",
        "providers: { p: { credentials: { other: hunter2hunter2 } } }",
        "providers: { p: { headers: { Authorization:Bearer hunter2hunter2 } } }",
        "providers: { p: { headers: { 'Authorization Bearer hunter2hunter2': x } } }",
        "providers: { p: { proxy: hunter2hunter2 } }",
        "providers: { p: { proxy: { url: 'u:hunter2hunter2@h' } } }",
        "providers: { p: { base_url: 'ftp://h/?key=hunter2hunter2' } }",
        "providers: { p: { base_url: 'me:hunter2hunter2@h' } }",
        "providers: { p: { api_key: \"${KEY:-hunter2hunter2\\n}\" } }",
        "providers: { p: { api_key: !!int hunter2hunter2 } }",
        "providers: { p: { api_key: *hunter2hunter2 } }",
        "providers: { p: { api_key: hunter2hunter2: } }",
        "fleet: { key: hunter2hunter2, name: '' }",
        "fleet: { store: 'host=h password=hunter2hunter2' }",
        "journal: { store: 'host=h password=hunter2hunter2' }",
        "journal: { store: 'postgres//u:hunter2hunter2@h' }",
        "journal: { store: 'mysql://h?password=hunter2hunter2' }",
        "journal: { store: '${DB:-mysql://u:hunter2hunter2@h}' }",
        "journal: { encryption_keys: [hunter2hunter2] }",
        "journal: { encryption_keys: hunter2hunter2 }",
        "telemetry: { otlp_endpoint: 'localhost:4317?key=hunter2hunter2' }",
        "server: { keys: [ hunter2hunter2 ] }",
        "server: { keys: hunter2hunter2 }",
        "server: { jwt: { jwks_url: 'ftp://h/?code=hunter2hunter2' } }",
        "tools: { servers: { s: { command: x, env: { A=hunter2hunter2 } } } }",
        "tools: { servers: { s: { command: x, args: '--token hunter2hunter2' } } }",
        "tools: { servers: { s: { url: 'ftp://x/?key=hunter2hunter2' } } }",
    ] {
        let faults = load_text(text, None, &given(&[])).unwrap_err();
        let shown = format!("{faults} {faults:?} {:?}", faults.setting_faults());
        assert!(!shown.contains("hunter2"), "{text}: {shown}");
    }
}

#[test]
fn the_reference_of_a_secret_is_shown_without_its_default() {
    let text = "fleet: { key: '${FLEET_KEY:-short}' }";
    assert_eq!(
        faults_of(text, &[]),
        "1:15: fleet.key: `${FLEET_KEY}` is shorter than 16 bytes"
    );
}
