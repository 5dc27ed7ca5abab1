//! Commands that need no server: `config`, `classify`, and what is wrong with the arguments of the
//! others.

#![expect(clippy::unwrap_used, reason = "a test ends where its world fails")]

use std::process::Stdio;

use serde_json::Value;

use crate::support::{
    binary::{relight, run, run_with},
    http::closed_address,
};

const FAULTY: &str = "\
server: { listen: nowhere }
targets:
  gpt: { provider: opnai, model: x }
routes:
  default: { targets: [gtp] }
";

fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[tokio::test]
async fn an_invalid_configuration_is_reported_with_all_faults_and_their_places_and_exit_code_2() {
    let (_folder, path) = file("relight.yaml", FAULTY);
    let expected = format!(
        "{path}:1:19: server.listen: `nowhere` is no IP address or host name of this machine with a port; write it like 127.0.0.1:50051\n\
         {path}:3:20: targets.gpt.provider: `opnai` is no provider; did you mean `openai`?\n\
         {path}:5:24: routes.default.targets[0]: `gtp` is no target; did you mean `gpt`?\n\
         relight: the configuration has 3 faults\n"
    );
    for arguments in [
        ["config", "check", &path],
        ["config", "show", &path],
        ["serve", "--config", &path],
    ] {
        let ran = run(&arguments).await;
        assert_eq!(
            (ran.code, ran.err.as_str(), ran.out.as_str()),
            (Some(2), expected.as_str(), ""),
            "{arguments:?}"
        );
    }
    let ran = run(&["config", "check", &path, "--output", "json"]).await;
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, &told["valid"]), (Some(2), &Value::Bool(false)));
    assert_eq!(told["faults"][2]["nearest"], "gpt");
    assert_eq!(told["faults"][2]["line"], 5);
}

#[tokio::test]
async fn a_configuration_that_is_no_file_is_reported_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nope").display().to_string();
    for (file, reason) in [
        (missing, "no such file"),
        (folder.path().display().to_string(), "is no regular file"),
    ] {
        let expected = format!("{file}: {reason}\nrelight: the configuration has 1 fault\n");
        for arguments in [
            &["config", "check", &file][..],
            &["serve", "--config", &file],
        ] {
            let ran = run(arguments).await;
            assert_eq!(
                (ran.code, ran.err.as_str()),
                (Some(2), expected.as_str()),
                "{arguments:?}"
            );
        }
    }
}

#[tokio::test]
async fn settings_of_earlier_versions_are_read_by_their_old_names_and_warned_of() {
    let old = "seed: 7\nproviders: { p: { dialect: scripted } }\ntargets: { t: { provider: p, model: m } }\n\
               routes: { default: { targets: [t], select: { wake_spread: 1s } } }\n\
               policies: { standard: { retry: { stay: 3s, semantic_retries: 1 } } }\n\
               circuit: { open_jitter: 0.1 }\n";
    let (_folder, path) = file("relight.yaml", old);
    let checked = run(&["config", "check", &path]).await;
    let expected = "\
        warning: setting of an earlier version: 1:1: seed: no longer has an effect; remove it\n\
        warning: setting of an earlier version: 4:46: routes.default.select.wake_spread: no longer has an effect; remove it\n\
        warning: setting of an earlier version: 6:12: circuit.open_jitter: no longer has an effect: open times are spread \
        by a fifth; remove it\n\
        warning: setting of an earlier version: 5:34: policies.standard.retry.stay: is now called `prefer_same_target`\n\
        warning: setting of an earlier version: 5:44: policies.standard.retry.semantic_retries: no longer has an effect: \
        `max_retries` bounds every call after the first, those after unusable answers included; remove it\n";
    assert_eq!((checked.code, checked.err.as_str()), (Some(0), expected));
    let checked = run(&["config", "check", &path, "--output", "json"]).await;
    let checked: Value = serde_json::from_str(&checked.out).unwrap();
    assert_eq!(
        checked["warnings"][3]["path"],
        "policies.standard.retry.stay"
    );
    let shown = run(&["config", "show", &path]).await.out;
    assert!(
        shown.contains("prefer_same_target: 3s") && !shown.contains("seed:"),
        "{shown}"
    );

    let both = "policies: { standard: { retry: { stay: 3s, prefer_same_target: 2s } } }\n";
    let (_folder, path) = file("both.yaml", both);
    let checked = run(&["config", "check", &path]).await;
    let expected = "policies.standard.retry.stay: is now called `prefer_same_target`, which is written, too; remove one of the two";
    assert!(
        checked.code == Some(2) && checked.err.contains(expected),
        "{}",
        checked.err
    );
}

#[tokio::test]
async fn a_right_configuration_is_counted_and_shown_as_one_that_can_be_loaded_again() {
    let demo = run(&["demo", "--print-config"]).await;
    let (_folder, path) = file("relight.yaml", &demo.out);
    let checked = run(&["config", "check", &path]).await;
    assert_eq!(
        (checked.code, checked.out),
        (
            Some(0),
            format!("{path} is valid: 1 provider, 7 targets, 5 routes\n")
        )
    );

    let shown = run(&["config", "show", &path]).await;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(
        !shown.out.contains("no-real-key"),
        "a key is shown: {}",
        shown.out
    );
    let (_folder, path) = file("shown.yaml", &shown.out);
    let checked = run(&["config", "check", &path]).await;
    assert_eq!(checked.code, Some(0), "{}", checked.err);

    let schema: Value = serde_json::from_str(&run(&["config", "schema"]).await.out).unwrap();
    assert!(schema["properties"]["routes"].is_object());
}

#[tokio::test]
async fn a_failure_is_classified_for_people_with_the_wait_and_the_reason() {
    let ran = run(&[
        "classify",
        "--status",
        "429",
        "--header",
        "Retry-After: 2",
        "Rate limit reached",
    ])
    .await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for line in [
        "class           rate_limited",
        "retry helps     yes",
        "wait            2 s (from retry_after)",
    ] {
        assert!(
            ran.out.lines().any(|said| said == line),
            "{line} is not in\n{}",
            ran.out
        );
    }
    let pasted =
        "HTTP/2 401\r\nserver: x\r\n\r\n{\"error\":{\"message\":\"Incorrect API key provided\"}}";
    let ran = run_with(&["classify", "--output", "json"], pasted).await;
    let verdict: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (&verdict["class"], &verdict["retryable_same_target"]),
        (&"authentication".into(), &false.into())
    );
}

#[tokio::test]
async fn lines_of_failures_come_back_as_lines_of_verdicts_in_the_same_order() {
    let lines = "\
{\"id\": \"a\", \"provider\": \"openai\", \"surface\": \"http\", \"status\": 401, \"message\": \"Incorrect API key provided\"}
{\"id\": \"b\", \"surface\": \"http\", \"status\": 429, \"headers\": {\"retry-after\": \"2\"}, \"message\": \"Rate limit reached\"}
";
    for arguments in [&["classify", "--jsonl"][..], &["classify"]] {
        let ran = run_with(arguments, lines).await;
        let verdicts: Vec<Value> = ran
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let said: Vec<_> = verdicts
            .iter()
            .map(|verdict| (&verdict["id"], &verdict["class"]))
            .collect();
        assert_eq!(
            said,
            [
                (&"a".into(), &"authentication".into()),
                (&"b".into(), &"rate_limited".into())
            ]
        );
        assert_eq!(verdicts[1]["retry_after_ms"], 2000);
        let fields: Vec<&str> = verdicts[0]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let expected = [
            "id",
            "class",
            "detail",
            "retryable_same_target",
            "fallback_helps",
            "retry_after_ms",
            "rule",
        ];
        assert_eq!(fields, expected);
    }
}

#[tokio::test]
async fn a_labelled_corpus_is_scored_with_its_confusions() {
    let labelled = "\
{\"id\": \"a\", \"status\": 401, \"message\": \"Incorrect API key provided\", \"class\": \"authentication\", \"retryable_same_target\": false, \"fallback_helps\": true}
{\"id\": \"b\", \"status\": 401, \"message\": \"Incorrect API key provided\", \"class\": \"timeout\", \"retryable_same_target\": true, \"fallback_helps\": true}
";
    let (_folder, path) = file("labelled.jsonl", labelled);
    let ran = run(&["classify", "--score", &path]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(
        ran.out
            .contains("timeout              authentication            1"),
        "{}",
        ran.out
    );
    let ran = run(&["classify", "--score", &path, "--output", "json"]).await;
    let score: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        score["class_strict"],
        serde_json::json!({ "right": 1, "total": 2 })
    );
}

#[tokio::test]
async fn an_unreachable_server_is_reported_in_one_line_and_exit_code_1() {
    let (_socket, address) = closed_address();
    let address = format!("http://{address}");
    for arguments in [
        &["invoke", "hello", "--address"][..],
        &["watch", "--address"],
        &["circuits", "--address"],
    ] {
        let ran = run(&[arguments, &[&address]].concat()).await;
        assert_eq!(
            (ran.code, ran.err.lines().count()),
            (Some(1), 1),
            "{}",
            ran.err
        );
        assert!(
            ran.err.starts_with(&format!(
                "relight: no server at {address}: Connection refused"
            )),
            "{}",
            ran.err
        );
    }
}

#[tokio::test]
async fn the_version_names_its_commit_and_wrong_arguments_end_with_exit_code_2() {
    let ran = run(&["--version"]).await;
    assert!(
        ran.out
            .starts_with(&format!("relight {} (", env!("CARGO_PKG_VERSION"))),
        "{}",
        ran.out
    );
    assert_eq!(run(&["version"]).await.out, ran.out);
    let version: Value =
        serde_json::from_str(&run(&["version", "--output", "json"]).await.out).unwrap();
    let commit = std::process::Command::new("git")
        .args(["rev-parse", "--is-inside-work-tree"])
        .output();
    if commit.is_ok_and(|ran| ran.status.success()) {
        assert!(
            version["date"].as_str().unwrap().starts_with("20"),
            "{version}"
        );
    }
    assert_eq!(
        run(&["invoke", "--label", "blue", "hello"]).await.code,
        Some(2)
    );
    let ran = run(&["watch", "--type", "circuit_opend"]).await;
    assert!(
        ran.err.contains("did you mean `circuit_opened`?"),
        "{}",
        ran.err
    );
}

#[tokio::test]
async fn completions_and_manual_pages_are_made_by_the_program_itself() {
    for (shell, words) in [
        ("bash", "complete -F _relight"),
        ("zsh", "#compdef relight"),
        ("fish", "complete -c relight"),
    ] {
        let ran = run(&["completions", shell]).await;
        assert!(
            ran.code == Some(0) && ran.out.contains(words) && ran.out.contains("circuits"),
            "{shell}: {}",
            ran.out
        );
    }
    assert!(run(&["man"]).await.out.contains(".TH relight 1"));
    let folder = tempfile::tempdir().unwrap();
    let ran = run(&["man", "--into", folder.path().to_str().unwrap()]).await;
    let pages = std::fs::read_dir(folder.path()).unwrap().count();
    assert!(pages > 8, "{pages} pages");
    assert_eq!(
        ran.out,
        format!("{pages} pages in {}\n", folder.path().display())
    );
}

#[tokio::test]
async fn completions_and_the_manual_end_in_order_on_an_output_that_is_closed_or_full() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap();
        // One who stops reading is no failure; what cannot be written is one.
        for (output, code, said) in [
            (Stdio::from(closed), 0, ""),
            (Stdio::from(full), 1, "relight: No space left on device"),
        ] {
            let ended = relight(arguments)
                .stdout(output)
                .spawn()
                .unwrap()
                .wait_with_output()
                .await
                .unwrap();
            let err = String::from_utf8(ended.stderr).unwrap();
            assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {err}");
            assert!(
                err.starts_with(said) && !err.contains("panicked") && err.lines().count() <= 1,
                "{err}"
            );
        }
    }
}
