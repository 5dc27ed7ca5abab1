//! What the log says of a configuration that is read again, to operators who changed it or who sent
//! SIGHUP.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::process::{Process, replace};

/// The messages of the lines about this event.
fn messages(log: &[Value], event: &str) -> Vec<String> {
    let of = log.iter().filter(|line| line["event"] == event);
    of.map(|line| line["message"].as_str().unwrap().to_owned())
        .collect()
}

/// Waits for a line of this event with these words beyond those that there were.
async fn next(process: &Process, seen: &mut usize, event: &str, words: &str) -> String {
    let found = |log: &[Value]| {
        let after = messages(log.get(*seen..).unwrap_or_default(), event);
        after.into_iter().find(|message| message.contains(words))
    };
    let log = process.log_until(|log| found(log).is_some()).await;
    let message = found(&log).unwrap();
    *seen = log.len();
    message
}

#[tokio::test]
async fn every_sighup_has_its_result_in_the_log_also_where_the_file_is_as_it_was() {
    let process = Process::start("admission: { max_in_flight: 5 }\n").await;
    let mut seen = process.log().len();
    for _ in 0..2 {
        process.signal(Signal::HUP);
        next(&process, &mut seen, "process", "nothing has changed").await;
    }
    replace(&process.file, "admision: { max_in_flight: 5 }\n");
    next(
        &process,
        &mut seen,
        "configuration_rejected",
        "did you mean `admission`",
    )
    .await;
    for _ in 0..2 {
        process.signal(Signal::HUP);
        let line = next(&process, &mut seen, "process", "is still refused").await;
        assert!(line.contains("did you mean `admission`"), "{line}");
    }
    std::fs::remove_file(&process.file).unwrap();
    next(
        &process,
        &mut seen,
        "configuration_rejected",
        "no such file",
    )
    .await;
    process.signal(Signal::HUP);
    let line = next(&process, &mut seen, "process", "is still refused").await;
    assert!(line.contains("no such file"), "{line}");
    let rejected = messages(&process.log(), "configuration_rejected");
    assert_eq!(rejected.len(), 2, "each is an event once: {rejected:?}");
}

#[tokio::test]
async fn the_log_says_that_a_restart_is_needed_as_long_as_it_is_and_never_for_an_address_that_was_given()
 {
    let text = |limit: u32, retention: &str| {
        format!(
            "admission: {{ max_in_flight: {limit} }}\njournal: {{ store: memory, retention: {retention} }}\n"
        )
    };
    // Its addresses are given on the command line.
    let process = Process::start(&text(1, "1h")).await;
    let mut seen = process.log().len();
    let waiting = "a restart is needed for journal.retention";
    for (changed, expected) in [
        (
            text(1, "2h"),
            format!("A new configuration is in force, number 2: journal.retention; {waiting}"),
        ),
        (
            text(2, "2h"),
            format!(
                "A new configuration is in force, number 3: admission.max_in_flight; {waiting}"
            ),
        ),
        (
            text(2, "1h"),
            "A new configuration is in force, number 4: journal.retention".to_owned(),
        ),
    ] {
        replace(&process.file, &changed);
        assert_eq!(
            next(&process, &mut seen, "configuration_reloaded", "").await,
            expected
        );
    }
}

#[tokio::test]
async fn a_folder_that_another_one_takes_the_place_of_is_followed_and_so_is_what_changes_in_it() {
    let process = Process::start("admission: { max_in_flight: 5 }\n").await;
    let (folder, mut seen) = (process.file.parent().unwrap(), process.log().len());
    let kept = tempfile::tempdir_in(folder.parent().unwrap()).unwrap();
    let (old, new) = (kept.path().join("old"), kept.path().join("new"));
    std::fs::create_dir(&new).unwrap();
    std::fs::write(
        new.join("relight.yaml"),
        "admission: { max_in_flight: 6 }\n",
    )
    .unwrap();
    std::fs::rename(folder, &old).unwrap();
    // Without the file for a while, as between the two commands of an operator.
    next(
        &process,
        &mut seen,
        "configuration_rejected",
        "no such file",
    )
    .await;
    std::fs::rename(&new, folder).unwrap();
    next(
        &process,
        &mut seen,
        "configuration_reloaded",
        "number 2: admission.max_in_flight",
    )
    .await;
    replace(&process.file, "admission: { max_in_flight: 7 }\n");
    next(
        &process,
        &mut seen,
        "configuration_reloaded",
        "number 3: admission.max_in_flight",
    )
    .await;

    std::fs::create_dir(&new).unwrap();
    std::fs::write(
        new.join("relight.yaml"),
        "admission: { max_in_flight: 8 }\n",
    )
    .unwrap();
    std::fs::rename(folder, kept.path().join("older")).unwrap();
    std::fs::rename(&new, folder).unwrap();
    next(
        &process,
        &mut seen,
        "configuration_reloaded",
        "number 4: admission.max_in_flight",
    )
    .await;
    replace(&process.file, "admission: { max_in_flight: 9 }\n");
    next(
        &process,
        &mut seen,
        "configuration_reloaded",
        "number 5: admission.max_in_flight",
    )
    .await;
}
