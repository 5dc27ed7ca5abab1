//! Conversations: from one good checkpoint to the next, or not at all.

use relight::internals::journal::{
    FinishError, Held, JournalError, Locked, Payloads, THREAD_ERRORS_KEPT, Thread, ThreadCommit,
    ThreadError,
};

use super::*;

async fn lock(journal: &Arc<dyn Journal>, key: &ThreadKey, name: &str) -> Thread {
    match journal.lock_thread(key, &id(name), at(1)).await.unwrap() {
        Locked::Locked(thread) => *thread,
        Locked::Busy { running } => panic!("{running} runs on it"),
    }
}

fn turn(expected_version: u64, question: &str, answer: &str) -> ThreadCommit {
    let patch = HistoryPatch {
        replace_tail: 0,
        messages: vec![said(Role::Assistant, answer)],
    };
    ThreadCommit {
        expected_version,
        turn: vec![said(Role::User, question)],
        patch,
    }
}

/// The end of an invocation whose answer is added to its thread.
fn good_end(name: &str, commit: ThreadCommit) -> Finish {
    Finish {
        thread: Some(ThreadEnd::Commit(commit)),
        ..end(name, 1, "answer", Vec::new())
    }
}

async fn version_of(journal: &Arc<dyn Journal>, key: &ThreadKey) -> u64 {
    journal.load_thread(key).await.unwrap().unwrap().version
}

async fn texts(journal: &Arc<dyn Journal>, key: &ThreadKey) -> Vec<String> {
    let thread = journal.load_thread(key).await.unwrap().unwrap();
    thread
        .messages
        .iter()
        .map(|message| message.joined_text().into_owned())
        .collect()
}

async fn a_turn_and_its_answer_are_appended_in_one_piece_and_the_version_grows_by_one(
    engine: Engine,
) {
    let journal = engine.open().await;
    let key = thread("t");
    assert_eq!(journal.load_thread(&key).await, Ok(None));
    for (round, name) in ["a", "b", "c"].into_iter().enumerate() {
        begin(&journal, on_thread(name, &key)).await;
        let version = round as u64 + 1;
        let loaded = lock(&journal, &key, name).await;
        assert_eq!(
            (loaded.version, loaded.messages.len(), loaded.running),
            (version, round * 2, Some(id(name)))
        );
        let commit = turn(
            version,
            &format!("question {name}"),
            &format!("answer {name}"),
        );
        journal.finish(good_end(name, commit), at(2)).await.unwrap();
        assert_eq!(version_of(&journal, &key).await, version + 1);
    }
    let thread = journal.load_thread(&key).await.unwrap().unwrap();
    assert_eq!(
        (
            thread.version,
            thread.running,
            thread.created_at,
            thread.updated_at
        ),
        (4, None, at(1), at(2))
    );
    let expected = [
        "question a",
        "answer a",
        "question b",
        "answer b",
        "question c",
        "answer c",
    ];
    assert_eq!(texts(&journal, &key).await, expected);
}

async fn a_patch_may_replace_the_turn_and_what_was_stored_before_it(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    journal
        .finish(good_end("a", turn(1, "q1", "a1")), at(2))
        .await
        .unwrap();
    begin(&journal, on_thread("b", &key)).await;
    lock(&journal, &key, "b").await;
    let patch = HistoryPatch {
        replace_tail: 2,
        messages: vec![
            said(Role::Assistant, "a1 noted"),
            said(Role::User, "q2 noted"),
            said(Role::Assistant, "a2"),
        ],
    };
    let commit = ThreadCommit {
        patch,
        ..turn(2, "q2", "")
    };
    journal.finish(good_end("b", commit), at(3)).await.unwrap();
    assert_eq!(
        texts(&journal, &key).await,
        ["q1", "a1 noted", "q2 noted", "a2"]
    );
}

async fn a_failure_is_added_to_the_errors_and_the_messages_stay(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("good", &key)).await;
    lock(&journal, &key, "good").await;
    journal
        .finish(good_end("good", turn(1, "q", "a")), at(2))
        .await
        .unwrap();
    for name in ["bad", "worse"] {
        begin(&journal, on_thread(name, &key)).await;
        lock(&journal, &key, name).await;
        let failed = failed_end(name, Some(ThreadEnd::Fail));
        journal.finish(failed.clone(), at(3)).await.unwrap();
        journal.finish(failed, at(3)).await.unwrap();
    }
    let thread = journal.load_thread(&key).await.unwrap().unwrap();
    let errors: Vec<InvocationId> = thread
        .errors
        .iter()
        .map(|error| error.invocation.clone())
        .collect();
    assert_eq!(
        errors,
        [id("bad"), id("worse")],
        "each once, although told twice"
    );
    assert_eq!(
        thread.errors[0],
        outcome("bad", Err(FailureClass::ServerError))
    );
    assert_eq!((thread.version, thread.running), (2, None));
    assert_eq!(texts(&journal, &key).await, ["q", "a"]);
}

async fn errors_accumulate_up_to_their_bound_and_the_newest_stay(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    let rounds = THREAD_ERRORS_KEPT + 3;
    for round in 0..rounds {
        let name = format!("bad {round}");
        begin(&journal, on_thread(&name, &key)).await;
        lock(&journal, &key, &name).await;
        journal
            .finish(failed_end(&name, Some(ThreadEnd::Fail)), at(3))
            .await
            .unwrap();
    }
    let errors = journal.load_thread(&key).await.unwrap().unwrap().errors;
    assert_eq!(errors.len(), THREAD_ERRORS_KEPT);
    assert_eq!(errors[0].invocation, id("bad 3"));
    assert_eq!(
        errors.last().unwrap().invocation,
        id(&format!("bad {}", rounds - 1))
    );
}

async fn a_second_invocation_on_a_thread_is_refused_with_the_running_one(engine: Engine) {
    let journal = engine.open().await;
    warm(&journal).await;
    let key = thread("t");
    begin(&journal, on_thread("first", &key)).await;
    lock(&journal, &key, "first").await;
    journal
        .finish(end("first", 1, "hello", Vec::new()), at(1))
        .await
        .unwrap();
    for number in 0..20 {
        begin(&journal, on_thread(&format!("{number}"), &key)).await;
    }
    let locks = (0..20).map(|number| {
        let (journal, key) = (Arc::clone(&journal), key.clone());
        async move {
            journal
                .lock_thread(&key, &id(&format!("{number}")), at(1))
                .await
                .unwrap()
        }
    });
    let locks = futures_util::future::join_all(locks).await;
    let winner = journal
        .load_thread(&key)
        .await
        .unwrap()
        .unwrap()
        .running
        .unwrap();
    let (mut locked, mut refused) = (0, 0);
    for (number, lock) in locks.into_iter().enumerate() {
        match lock {
            Locked::Locked(_) => {
                assert_eq!(winner, id(&format!("{number}")));
                locked += 1;
            }
            Locked::Busy { running } => {
                assert_eq!(running, winner);
                refused += 1;
            }
        }
    }
    assert_eq!((locked, refused), (1, 19));
    lock(&journal, &key, winner.as_str()).await;
}

async fn the_lock_of_an_invocation_whose_owner_is_gone_is_taken_and_its_answer_refused(
    engine: Engine,
) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("dead", &key)).await;
    lock(&journal, &key, "dead").await;
    let new = NewInvocation {
        owner: owner("two"),
        ..on_thread("next", &key)
    };
    journal.begin(new, at(8)).await.unwrap();
    let busy = journal.lock_thread(&key, &id("next"), at(9)).await.unwrap();
    assert_eq!(
        busy,
        Locked::Busy {
            running: id("dead")
        }
    );
    assert!(matches!(
        journal.lock_thread(&key, &id("next"), at(10)).await,
        Ok(Locked::Locked(_))
    ));
    for late in [
        good_end("dead", turn(1, "q", "a")),
        failed_end("dead", Some(ThreadEnd::Fail)),
    ] {
        let refused = FinishError::Thread(ThreadError::NotLocked {
            holder: Some(id("next")),
        });
        assert_eq!(journal.finish(late, at(11)).await, Err(refused));
    }
    journal
        .finish(good_end("next", turn(1, "q2", "a2")), at(12))
        .await
        .unwrap();
    assert_eq!(texts(&journal, &key).await, ["q2", "a2"]);
}

async fn a_finished_invocation_leaves_no_lock_behind(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    journal
        .finish(end("a", 1, "partial", Vec::new()), at(2))
        .await
        .unwrap();
    assert_eq!(
        journal.load_thread(&key).await.unwrap().unwrap().running,
        None
    );
    begin(&journal, on_thread("b", &key)).await;
    let resumed = lock(&journal, &key, "b").await;
    assert_eq!(
        resumed.messages,
        [],
        "the partial answer is not in the history"
    );
}

async fn another_version_than_the_locked_one_is_refused_and_nothing_changes(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    let refused = journal
        .finish(good_end("a", turn(7, "q", "a")), at(2))
        .await;
    assert_eq!(
        refused,
        Err(FinishError::Thread(ThreadError::Version { current: 1 }))
    );
    let thread = journal.load_thread(&key).await.unwrap().unwrap();
    assert_eq!(
        (thread.version, thread.messages.len(), thread.running),
        (1, 0, Some(id("a")))
    );
}

async fn a_commit_whose_answer_was_lost_is_sent_again_without_effect(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    for moment in [2, 3] {
        journal
            .finish(good_end("a", turn(1, "q", "a")), at(moment))
            .await
            .unwrap();
    }
    assert_eq!(version_of(&journal, &key).await, 2);
    assert_eq!(texts(&journal, &key).await, ["q", "a"]);
}

async fn the_outcome_and_the_thread_change_together_or_not_at_all(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    let finish = |version| {
        let (steps, _) = answer("a", 1, "hello");
        let thread = Some(ThreadEnd::Commit(turn(version, "hi", "hello")));
        Finish {
            thread,
            ..end("a", 1, "hello", steps)
        }
    };
    let refused = journal.finish(finish(7), at(2)).await;
    assert_eq!(
        refused,
        Err(FinishError::Thread(ThreadError::Version { current: 1 }))
    );
    assert!(seqs(&journal, "a").await.is_empty());
    assert!(!journal.get(&id("a")).await.unwrap().unwrap().is_finished());
    assert_eq!(
        journal.load_thread(&key).await.unwrap().unwrap().running,
        Some(id("a"))
    );
    journal.finish(finish(1), at(3)).await.unwrap();
    assert_eq!(texts(&journal, &key).await, ["hi", "hello"]);
    begin(&journal, on_thread("b", &key)).await;
    lock(&journal, &key, "b").await;
    journal
        .finish(failed_end("b", Some(ThreadEnd::Fail)), at(4))
        .await
        .unwrap();
    let thread = journal.load_thread(&key).await.unwrap().unwrap();
    assert_eq!(
        (thread.version, thread.errors.len(), thread.running),
        (2, 1, None)
    );
    begin(&journal, invocation("c")).await;
    let refused = journal
        .finish(failed_end("c", Some(ThreadEnd::Fail)), at(5))
        .await;
    assert_eq!(
        refused,
        Err(FinishError::Thread(ThreadError::NotLocked { holder: None }))
    );
}

async fn who_takes_an_execution_over_keeps_its_thread(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    journal
        .take_over(
            &Held {
                id: id("a"),
                epoch: 1,
            },
            &owner("two"),
            at(20),
        )
        .await
        .unwrap();
    let again = journal.lock_thread(&key, &id("a"), at(21)).await.unwrap();
    assert!(matches!(again, Locked::Locked(thread) if thread.version == 1));
    begin(&journal, on_thread("b", &key)).await;
    assert_eq!(
        journal.lock_thread(&key, &id("b"), at(22)).await,
        Ok(Locked::Busy { running: id("a") })
    );
}

async fn a_thread_is_deleted_at_its_version_and_not_while_an_invocation_runs_on_it(engine: Engine) {
    let journal = engine.open().await;
    let key = thread("t");
    assert_eq!(journal.delete_thread(&key, None, at(1)).await, Ok(false));
    begin(&journal, on_thread("a", &key)).await;
    lock(&journal, &key, "a").await;
    let busy = Err(ThreadError::Busy { running: id("a") });
    assert_eq!(journal.delete_thread(&key, None, at(2)).await, busy);
    journal
        .finish(good_end("a", turn(1, "q", "a")), at(2))
        .await
        .unwrap();
    assert_eq!(
        journal.delete_thread(&key, Some(1), at(3)).await,
        Err(ThreadError::Version { current: 2 })
    );
    assert_eq!(journal.delete_thread(&key, Some(2), at(3)).await, Ok(true));
    assert_eq!(journal.load_thread(&key).await, Ok(None));
    begin(&journal, on_thread("b", &key)).await;
    let anew = lock(&journal, &key, "b").await;
    assert_eq!(
        (anew.version, anew.messages.len(), anew.errors.len()),
        (1, 0, 0)
    );
}

async fn without_payloads_a_thread_is_refused(engine: Engine) {
    let journal = engine
        .open_with(Limits {
            payloads: Payloads::None,
            ..Limits::default()
        })
        .await;
    let key = thread("t");
    begin(&journal, on_thread("a", &key)).await;
    let refused = journal.lock_thread(&key, &id("a"), at(1)).await;
    assert_eq!(refused, Err(JournalError::NotKept("a thread")));
}

on_every_engine!(
    a_turn_and_its_answer_are_appended_in_one_piece_and_the_version_grows_by_one,
    a_patch_may_replace_the_turn_and_what_was_stored_before_it,
    a_failure_is_added_to_the_errors_and_the_messages_stay,
    errors_accumulate_up_to_their_bound_and_the_newest_stay,
    a_second_invocation_on_a_thread_is_refused_with_the_running_one,
    the_lock_of_an_invocation_whose_owner_is_gone_is_taken_and_its_answer_refused,
    a_finished_invocation_leaves_no_lock_behind,
    another_version_than_the_locked_one_is_refused_and_nothing_changes,
    a_commit_whose_answer_was_lost_is_sent_again_without_effect,
    the_outcome_and_the_thread_change_together_or_not_at_all,
    who_takes_an_execution_over_keeps_its_thread,
    a_thread_is_deleted_at_its_version_and_not_while_an_invocation_runs_on_it,
    without_payloads_a_thread_is_refused,
);
