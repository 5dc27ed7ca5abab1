//! Commands, snippets and transcripts of the documentation work as documented, run as they are
//! written.

mod figures;
mod names;
mod promises;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

use crate::support::{
    binary::{Ran, run},
    process::Process,
    room::room,
};

/// What is written in the place of `relight.yaml`.
const CONFIGURATION: &str = include_str!("../../src/cli/demo/relight.yaml");

/// Longest time that one command may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// Pages whose every command is run.
const TUTORIALS: [&str; 2] = ["README.md", "docs/ten-minutes.md"];

/// Commands that cannot be run here, by what they begin with, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo test", "runs this very test"),
    (
        "helm ",
        "needs a cluster; the chart's own tests render and lint it",
    ),
    ("kubectl ", "needs a cluster"),
    (
        "python -m grpc_tools.protoc",
        "needs grpcio-tools; run with the client below where they are installed",
    ),
    ("python examples/client.py", "see above"),
    ("docker ", "needs a container engine"),
    (
        "git ",
        "needs a repository with changes; `relight invoke` reads standard input elsewhere",
    ),
    (
        "relight invoke --resume",
        "there is nothing to resume; see `stream_terminal`",
    ),
    ("relight watch", "does not end; see `cli_client`"),
    ("relight status --replica", "needs a fleet; see `fleet`"),
    (
        "relight invoke --tool",
        "needs a tool server; `relight demo tools` has some",
    ),
    ("curl ", "needs a network"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The lines of all fenced blocks in this language.
fn fenced(text: &str, language: &str) -> Vec<String> {
    // Every other piece is inside a fence, and begins with the language.
    let inside = text
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.split_once('\n'));
    inside
        .filter(|(name, _)| *name == language)
        .map(|(_, lines)| lines.to_owned())
        .collect()
}

/// Commands of a shell block, without comments; continued lines are joined.
fn commands(block: &str) -> Vec<String> {
    let joined = block.replace("\\\n", " ");
    let lines = joined.lines().map(|line| {
        line.split(" #")
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned()
    });
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect()
}

/// The commands in the examples at the end of a command's help; two spaces separate them from their
/// purpose.
async fn examples_of(command: &[&str]) -> Vec<String> {
    let help = run(&[command, &["--help"]].concat()).await.out;
    let Some((_, examples)) = help.split_once("Examples:\n") else {
        return Vec::new();
    };
    let lines = examples.lines().filter_map(|line| line.strip_prefix("  "));
    lines
        .map(|line| line.split("  ").next().unwrap_or(line).trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect()
}

/// Commands that take minutes here: they are well when they have begun and refuse nothing.
const SLOW: &str = "scenarios";

/// Runs a line in a shell in which `relight` and `cargo run --` are the binary, and whose folder
/// has what examples need.
async fn shell(line: &str, folder: &Path, address: &str) -> Ran {
    let line = line
        .replace("cargo run -- ", "relight ")
        .replace("OPENAI_API_KEY=… ", "");
    // What another program makes of the output is its own matter.
    let line = line.split(" | jq").next().unwrap_or_default();
    // In place of the shell, so that nothing is left behind when it is killed.
    let line = if line.contains(SLOW) {
        format!("exec {line}")
    } else {
        line.to_owned()
    };
    let path = format!("{}:{}", folder.join("bin").display(), env!("PATH"));
    let child = Command::new("sh")
        .args(["-c", line.as_str()])
        .current_dir(folder)
        .env_clear()
        .envs([
            ("PATH", path.as_str()),
            ("RELIGHT_ADDRESS", address),
            ("HOME", folder.to_str().unwrap()),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let patience = if line.contains(SLOW) {
        Duration::from_secs(5)
    } else {
        PATIENCE
    };
    let Ok(ended) = tokio::time::timeout(patience, child.wait_with_output()).await else {
        assert!(line.contains(SLOW), "`{line}` did not end");
        return Ran {
            code: Some(0),
            out: String::new(),
            err: String::new(),
        };
    };
    let ended = ended.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ran {
        code: ended.status.code(),
        out: text(ended.stdout),
        err: text(ended.stderr),
    }
}

fn workshop() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    std::os::unix::fs::symlink(
        env!("CARGO_BIN_EXE_relight"),
        folder.path().join("bin/relight"),
    )
    .unwrap();
    fs::write(folder.path().join("relight.yaml"), CONFIGURATION).unwrap();
    for name in ["failures.jsonl", "labelled.jsonl"] {
        fs::copy(
            root().join("crates/relight-policy/tests/fixtures/classify/documented.jsonl"),
            folder.path().join(name),
        )
        .unwrap();
    }
    folder
}

#[tokio::test]
async fn every_command_of_the_documentation_and_of_the_help_runs_as_it_is_written() {
    let _room = room().await;
    let folder = workshop();
    // The examples use a target `gpt` and a route `careful`.
    let text = "providers: { stage: { dialect: scripted } }\ntargets: { gpt: { provider: stage, model: m } }\n";
    let server = Process::start(text).await;
    let mut lines = Vec::new();
    for page in [
        "README.md",
        "docs/ten-minutes.md",
        "helm/relight/README.md",
        "docs/how-recovery-decides.md",
        "docs/from-symptom-to-file.md",
        "docs/proofs.md",
        "docs/add-a-failure-rule.md",
        "CONTRIBUTING.md",
    ] {
        let text = fs::read_to_string(root().join(page)).unwrap_or_default();
        let found = fenced(&text, "sh")
            .iter()
            .flat_map(|block| commands(block))
            .collect::<Vec<_>>();
        // The other pages have recipes for developers, which run this test.
        lines.extend(
            found
                .into_iter()
                .filter(|line| TUTORIALS.contains(&page) || line.starts_with("relight ")),
        );
    }
    for command in [
        "invoke",
        "watch",
        "status",
        "health",
        "circuits",
        "classify",
        "scenarios",
        "config",
        "serve",
        "demo",
    ] {
        lines.extend(examples_of(&[command]).await);
    }
    let mut faults = Vec::new();
    let (mut ran_any, mut passed_over) = (0, 0);
    for line in lines {
        if NOT_RUN.iter().any(|(begins, _)| {
            line.replace("cargo run -- ", "relight ")
                .starts_with(begins)
        }) {
            passed_over += 1;
            continue;
        }
        // A server does not end; `cli_serve` starts it in the same words.
        if line.contains("serve") && !line.contains("--help") {
            continue;
        }
        let ran = shell(&line, folder.path(), &server.address).await;
        ran_any += 1;
        let refused = ran.err.contains("Usage:") || ran.err.contains("unexpected argument");
        if refused || ran.code != Some(0) {
            faults.push(format!(
                "`{line}` ends with {:?}:\n{}{}",
                ran.code, ran.out, ran.err
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(
        ran_any >= 12,
        "{ran_any} commands were found, {passed_over} cannot be run here"
    );
}

#[tokio::test]
async fn the_transcript_of_the_readme_is_the_demos() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let shown = fenced(&readme, "text")
        .into_iter()
        .find(|block| block.starts_with("1  "))
        .unwrap();
    let ran = run(&["demo", "--fast"]).await;
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    // Times differ from run to run.
    let plain = |text: &str| -> Vec<String> {
        let digits = |line: &str| {
            let mut plain = String::new();
            for letter in line.trim().chars() {
                if !letter.is_ascii_digit() && letter != '.' {
                    plain.push(letter);
                } else if !plain.ends_with('#') {
                    plain.push('#');
                }
            }
            // A slow machine takes seconds where another one takes milliseconds.
            plain.replace("# ms", "# s")
        };
        text.lines()
            .filter(|line| !line.trim().is_empty())
            .map(digits)
            .collect()
    };
    let printed = plain(&ran.out);
    for line in plain(&shown) {
        assert!(
            printed.contains(&line),
            "the demo does not print: {line}\n{}",
            ran.out
        );
    }
}

#[tokio::test]
async fn every_configuration_of_the_documentation_is_valid() {
    let folder = workshop();
    let others = [
        "docs/behind-and-in-front.md",
        "docs/cloud-identities.md",
        "docs/conventions.md",
    ];
    let pages = TUTORIALS.iter().chain(&others);
    let pages = pages.map(|page| fs::read_to_string(root().join(page)).unwrap());
    let chart = fs::read_to_string(root().join("helm/relight/README.md")).unwrap();
    let mut files: Vec<String> = pages.flat_map(|page| fenced(&page, "yaml")).collect();
    files.push(fs::read_to_string(root().join("examples/relight.yaml")).unwrap());
    // The chart's values hold the file below `config`; its placeholder is distinguished from a hash
    // by its brackets.
    let below = fenced(&chart, "yaml").into_iter().filter_map(|values| {
        let (_, config) = values.split_once("config:\n")?;
        let inside = config.lines().take_while(|line| line.starts_with("  "));
        Some(inside.map(|line| &line[2..]).collect::<Vec<_>>().join("\n"))
    });
    files.extend(below.map(|text| {
        text.lines()
            .map(|line| match line.split_once('<') {
                Some((before, _)) => format!("{before}{}", "0".repeat(64)),
                None => line.to_owned(),
            })
            .collect::<Vec<_>>()
            .join("\n")
    }));
    for text in files {
        let file = folder.path().join("file.yaml");
        fs::write(&file, &text).unwrap();
        let keys = "OPENAI_API_KEY=a ANTHROPIC_API_KEY=b GATEWAY_KEY=c RELIGHT_JOURNAL=memory";
        let ran = shell(
            &format!("{keys} relight config check file.yaml"),
            folder.path(),
            "",
        )
        .await;
        assert_eq!(ran.code, Some(0), "{}{}\n{text}", ran.out, ran.err);
    }
}

#[tokio::test]
async fn the_test_pod_of_the_chart_runs_a_command_that_relight_takes() {
    let template =
        fs::read_to_string(root().join("helm/relight/templates/tests/config.yaml")).unwrap();
    let (_, arguments) = template.split_once("args:\n").unwrap();
    let arguments = arguments
        .lines()
        .map_while(|line| line.trim().strip_prefix("- "));
    let folder = workshop();
    let file = folder.path().join("relight.yaml").display().to_string();
    let arguments: Vec<String> = arguments
        .map(|argument| argument.replace("/etc/relight/relight.yaml", &file))
        .collect();
    assert!(arguments.contains(&file), "{arguments:?}");
    let ran = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.err);
}

#[tokio::test]
async fn the_python_client_of_the_tutorial_is_the_example_and_runs_after_the_commands_there() {
    let tutorial = fs::read_to_string(root().join("docs/ten-minutes.md")).unwrap();
    let example = fs::read_to_string(root().join("examples/client.py")).unwrap();
    let shown = fenced(&tutorial, "python")
        .into_iter()
        .find(|block| block.contains("relight.v1"))
        .unwrap();
    assert!(
        example.contains(&shown),
        "docs/ten-minutes.md and examples/client.py differ"
    );
    let folder = workshop();
    let server = Process::start("").await;
    let has_tools = shell("python -c 'import grpc_tools, grpc'", folder.path(), "").await;
    if has_tools.code != Some(0) {
        // Without these packages the commands cannot be run.
        return;
    }
    let copied = shell(
        &format!("cp -r {0}/proto {0}/examples .", root().display()),
        folder.path(),
        "",
    )
    .await;
    assert_eq!(copied.code, Some(0), "{}", copied.err);
    let lines = fenced(&tutorial, "sh")
        .iter()
        .flat_map(|block| commands(block))
        .collect::<Vec<_>>();
    let lines: Vec<_> = lines
        .into_iter()
        .filter(|line| line.starts_with("python "))
        .collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    for line in lines {
        let ran = shell(&line, folder.path(), &server.address).await;
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
    }
}

#[tokio::test]
async fn the_reference_of_the_configuration_is_what_the_command_prints() {
    let printed = run(&["config", "reference"]).await.out;
    let written = fs::read_to_string(root().join("docs/configuration.md")).unwrap();
    let stale = printed
        .lines()
        .zip(written.lines())
        .find(|(printed, written)| printed != written);
    assert_eq!(
        stale, None,
        "`relight config reference > docs/configuration.md` writes it anew"
    );
    assert_eq!(printed.lines().count(), written.lines().count());
    for setting in [
        "- **`listen`**",
        "## `providers.*`",
        "## `targets.*.circuit`, `circuit`",
        "default `30s`",
    ] {
        assert!(printed.contains(setting), "{setting} is missing");
    }
}
