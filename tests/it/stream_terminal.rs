//! `relight invoke` in a terminal survives what people do to it: Ctrl-Z, a kill, and a server that
//! is gone meanwhile.

use std::{path::Path, time::Duration};

use tokio::process::Command;

use crate::support::{
    binary,
    folding::Folding,
    process::{Process, Serve},
    slow_upstream::{ANSWER, configured, slow_upstream},
    terminal::{CTRL_Z, Terminal},
};

const FIRST_WORDS: &str = "One owner dies";

/// A script that calls the model, can be stopped, and continues when a key is pressed.
fn asking(server: &Process) -> String {
    format!(
        "'{}' invoke --address http://{} 'Tell me.'\necho \"[stopped: $?]\"\nread -r _\necho '[continued]'\n\
         fg >/dev/null\necho \"[ended: $?]\"\n",
        env!("CARGO_BIN_EXE_relight"),
        server.address
    )
}

/// What the terminal showed of the answer: up to the key, and from the continuation on.
fn of_the_answer(shown: &str) -> String {
    let before = shown.split("^Z").next().unwrap();
    let after = shown
        .split("[continued]")
        .nth(1)
        .unwrap()
        .split("[ended")
        .next()
        .unwrap();
    let lines = |text: &str| text.trim_matches(['\r', '\n']).to_owned();
    lines(before) + &lines(after)
}

/// Reads the invocation that the command remembers to its end, from the server.
async fn finished(state: &Path, server: &Process) -> Folding {
    let token = std::fs::read_to_string(state.join("relight").join("resume-token")).unwrap();
    let mut folding = Folding {
        token: token.trim().to_owned(),
        ..Folding::default()
    };
    tokio::time::timeout(Duration::from_mins(1), folding.insist(&server.recovery()))
        .await
        .unwrap();
    folding
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_z_stops_the_command_and_not_the_invocation() {
    let (upstream, folder) = (slow_upstream().await, tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let server = Process::start(&configured(&store, "fast", &upstream)).await;
    let mut terminal = Terminal::run(&asking(&server), folder.path());
    terminal.until(0, FIRST_WORDS).await;
    terminal.press(CTRL_Z).await;
    terminal.until(0, "[stopped: 148]").await;
    assert_eq!(
        finished(folder.path(), &server).await.text(),
        ANSWER,
        "it went on without its reader"
    );
    terminal.press("\n").await;
    let shown = terminal.end().await;
    assert!(shown.contains("[ended: 0]"), "{shown}");
    assert_eq!(of_the_answer(&shown), ANSWER, "{shown}");
    assert_eq!(upstream.requests().len(), 1, "the model was asked once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_dies_while_the_command_is_stopped_is_not_missed() {
    let (upstream, folder) = (slow_upstream().await, tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let config = configured(&store, "fast", &upstream);
    let mut server = Process::start(&config).await;
    let mut terminal = Terminal::run(&asking(&server), folder.path());
    terminal.until(0, FIRST_WORDS).await;
    terminal.press(CTRL_Z).await;
    terminal.until(0, "[stopped: 148]").await;
    server.kill().await;
    let successor = Serve::on(&server.address, &config).start().await;
    terminal.press("\n").await;
    let shown = terminal.end().await;
    assert!(shown.contains("[ended: 0]"), "{shown}");
    assert!(
        shown.contains("The connection was lost; resuming where it broke."),
        "{shown}"
    );
    // Where its first steps were not recorded, the answer is shown once more from its beginning.
    let anew = shown.lines().any(|line| line.trim() == ANSWER);
    assert!(
        anew || of_the_answer(&shown).ends_with(ANSWER.rsplit(' ').next().unwrap()),
        "{shown}"
    );
    assert!(shown.contains("lights go out."), "{shown}");
    assert_eq!(
        upstream.requests().len(),
        2,
        "the first attempt went down with its server"
    );
    drop(successor);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_command_is_continued_by_resume_and_holds_the_same() {
    let (upstream, folder) = (slow_upstream().await, tempfile::tempdir().unwrap());
    let store = format!("sqlite:{}", folder.path().join("journal.db").display());
    let server = Process::start(&configured(&store, "fast", &upstream)).await;
    let address = format!("http://{}", server.address);
    let script = format!(
        "echo \"[pid $$]\"\nexec '{}' invoke --address {address} 'Tell me.'\n",
        env!("CARGO_BIN_EXE_relight")
    );
    let mut terminal = Terminal::run(&script, folder.path());
    terminal.until(0, FIRST_WORDS).await;
    let pid = terminal
        .shown
        .split("[pid ")
        .nth(1)
        .unwrap()
        .split(']')
        .next()
        .unwrap()
        .to_owned();
    assert!(
        Command::new("kill")
            .args(["-KILL", &pid])
            .status()
            .await
            .unwrap()
            .success()
    );
    assert!(
        !terminal.end().await.contains("lights go out."),
        "it was killed in the middle"
    );
    // It comes back while the answer is still being made, checks every offset and hash, and shows
    // the whole.
    let resumed = binary::relight(&["invoke", "--address", &address, "--resume"])
        .env("XDG_STATE_HOME", folder.path())
        .output();
    let (resumed, folding) = tokio::join!(resumed, finished(folder.path(), &server));
    let resumed = resumed.unwrap();
    assert_eq!(
        String::from_utf8_lossy(&resumed.stdout),
        format!("{ANSWER}\n"),
        "{resumed:?}"
    );
    assert!(resumed.status.success());
    assert_eq!(folding.text(), ANSWER);
    assert_eq!(
        folding.terminal.as_ref().unwrap().result_hash,
        folding.hash()
    );
    assert_eq!(upstream.requests().len(), 1, "the model was asked once");
    let nothing = binary::relight(&["invoke", "--address", &address, "--resume"])
        .env("XDG_STATE_HOME", folder.path())
        .output()
        .await
        .unwrap();
    assert!(
        String::from_utf8_lossy(&nothing.stderr).contains("nothing to resume"),
        "{nothing:?}"
    );
}
