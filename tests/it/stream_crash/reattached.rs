//! A background response survives the server that requested it: the next one resumes it.

use std::sync::Arc;

use relight::internals::{
    grpc::v1::{
        AttemptCause, CancelInvocationRequest, InvocationState, RecoveryStrategy,
        cancel_invocation_request, terminal::Outcome,
    },
    journal::{Journal, JournalMode, Limits, postgres, sqlite},
    wire_server::answers::responses::text,
};
use serde_json::json;

use super::*;
use crate::support::{room::room, upstream::Request};

/// What happens to the response while it has no reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Whole,
    Gone,
    /// It continues for ever.
    Silent,
}

/// A provider whose first response takes long; it can be resumed as configured here. Later ones
/// come at once.
async fn provider(kept: Kept) -> Upstream {
    let upstream = Upstream::start().await;
    let begun = text(ANSWER).body_bytes().len() / 2;
    upstream.push(
        text(ANSWER)
            .in_pieces_of(200)
            .paced(Duration::from_millis(20))
            .stall_after(begun),
    );
    upstream.answering(
        move |request| match (is_new_request(request), is_cancel(request), kept) {
            (true, _, _) | (false, false, Kept::Whole) => text(ANSWER),
            (false, true, _) => Reply::document(&json!({"id": "resp_1", "status": "cancelled"})),
            (false, false, Kept::Gone) => Reply::status(404),
            (false, false, Kept::Silent) => text(ANSWER).stall_after(begun),
        },
    );
    upstream
}

fn is_new_request(request: &Request) -> bool {
    request.method == "POST" && request.path == "/v1/responses"
}

fn is_cancel(request: &Request) -> bool {
    request.method == "POST" && request.path == "/v1/responses/resp_1/cancel"
}

fn is_reading_on(request: &Request) -> bool {
    request.method == "GET" && request.path == "/v1/responses/resp_1?stream=true"
}

fn count(upstream: &Upstream, what: fn(&Request) -> bool) -> usize {
    upstream
        .requests()
        .iter()
        .filter(|request| what(request))
        .count()
}

/// The file of the journal, where it is one.
const JOURNAL: &str = "journal.db";

/// Two servers on one journal, and a stream on the first that has begun, and whose answer can be
/// found.
struct Begun {
    first: Process,
    second: Process,
    config: String,
    stream: tonic::Streaming<relight::internals::grpc::v1::StreamWithRecoveryResponse>,
    folding: Folding,
    folder: tempfile::TempDir,
}

impl Begun {
    async fn on_file(upstream: &Upstream) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(JOURNAL);
        let store = format!("sqlite:{}", path.display());
        let opened = || async move {
            Arc::new(
                sqlite::open(&path, JournalMode::Fast, Limits::default())
                    .await
                    .unwrap(),
            )
        };
        Self::on(upstream, folder, &store, || async {
            opened().await as Arc<dyn Journal>
        })
        .await
    }

    async fn on_postgres(upstream: &Upstream, database: &Database) -> Self {
        let (folder, url) = (tempfile::tempdir().unwrap(), database.url());
        let opened = || async {
            Arc::new(postgres::open(&url, Limits::default()).await.unwrap()) as Arc<dyn Journal>
        };
        Self::on(upstream, folder, &url, opened).await
    }

    async fn on<F: Future<Output = Arc<dyn Journal>>>(
        upstream: &Upstream,
        folder: tempfile::TempDir,
        store: &str,
        journal: impl FnOnce() -> F,
    ) -> Self {
        let yaml = one_target(upstream)
            .replace("openai_chat", "openai_responses")
            .replace(
                "model: m-1",
                "model: m-1, capabilities: { background: true }",
            )
            .replace("deadline: 20s", "deadline: 3m")
            // One more response may be requested; resuming one is no request.
            .replace("retry: {", "retry: { max_retries: 1,")
            .replace("400ms", "2m");
        let config =
            format!("{yaml}journal: {{ store: {store:?} }}\nserver: {{ drain_timeout: 1s }}\n");
        let (first, second) = (Process::start(&config).await, Process::start(&config).await);
        let mut folding = Folding::default();
        let mut stream = start(
            first.recovery(),
            resumable(streaming("Hello", RewindMode::Rewind)),
        )
        .await
        .unwrap();
        assert!(folding.follow(&mut stream, 6).await.is_none());
        let (journal, id) = (journal().await, folding.invocation.as_str().into());
        let recorded = async {
            while journal.get(&id).await.unwrap().unwrap().upstream.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, recorded)
            .await
            .expect("where the answer is made is recorded");
        Self {
            first,
            second,
            config,
            stream,
            folding,
            folder,
        }
    }

    /// Follows the invocation at the second server to its end.
    async fn continues_at_the_second(&mut self) {
        let client = self.second.recovery();
        tokio::time::timeout(PATIENCE, self.folding.insist(&client))
            .await
            .expect("it is taken over");
        assert_eq!(self.folding.text(), ANSWER);
        assert!(self.folding.is_completed());
        assert_eq!(self.folding.cursor.unwrap().0, 2, "another owner ended it");
    }

    async fn kill_the_first(&mut self) {
        self.first.signal(Signal::KILL);
        assert!(
            self.folding
                .follow(&mut self.stream, usize::MAX)
                .await
                .is_some()
        );
    }

    async fn stop_the_first(&self) {
        stop_between_writes(&self.first, &self.folder.path().join(JOURNAL)).await;
    }

    async fn cancel_at_the_second(&mut self) -> InvocationState {
        let request = CancelInvocationRequest {
            invocation: Some(cancel_invocation_request::Invocation::InvocationId(
                self.folding.invocation.clone(),
            )),
            reason: "enough".to_owned(),
        };
        self.second
            .recovery()
            .cancel_invocation(request)
            .await
            .unwrap()
            .into_inner()
            .state()
    }

    /// Checks that the response was requested once, resumed once, counted once.
    fn was_read_on(&self, upstream: &Upstream) {
        assert_eq!(
            (
                count(upstream, is_new_request),
                count(upstream, is_reading_on)
            ),
            (1, 1),
            "{:#?}",
            upstream.requests()
        );
        assert_eq!(upstream.requests().len(), 2);
        assert_eq!(
            self.folding.rewinds, 0,
            "it begins with what the client holds"
        );
        let terminal = self.folding.terminal.as_ref().unwrap();
        let causes: Vec<AttemptCause> = terminal
            .attempts
            .iter()
            .map(relight::internals::grpc::v1::Attempt::cause)
            .collect();
        assert_eq!(causes, [AttemptCause::First, AttemptCause::Continue]);
        assert_eq!(
            terminal.recovery_applied,
            [i32::from(RecoveryStrategy::Continue)]
        );
        assert!(
            terminal.reasoning.starts_with("Read on from the provider"),
            "{}",
            terminal.reasoning
        );
        let usage = terminal.usage.as_ref().unwrap();
        assert_eq!(
            (usage.input_tokens, usage.output_tokens),
            (Some(10), Some(8)),
            "what was paid for once is counted once"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_s_answer_is_read_on_from_the_provider_by_the_next_from_a_file() {
    let _room = room().await;
    let upstream = provider(Kept::Whole).await;
    let mut begun = Begun::on_file(&upstream).await;
    begun.kill_the_first().await;
    begun.continues_at_the_second().await;
    begun.was_read_on(&upstream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_s_answer_is_read_on_from_the_provider_by_the_next_from_postgres() {
    let _room = room().await;
    let Some(database) = Database::create().await else {
        return;
    };
    let upstream = provider(Kept::Whole).await;
    let mut begun = Begun::on_postgres(&upstream, &database).await;
    begun.kill_the_first().await;
    begun.continues_at_the_second().await;
    begun.was_read_on(&upstream);
    drop(begun);
    database.drop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_is_gone_is_requested_anew() {
    let _room = room().await;
    let upstream = provider(Kept::Gone).await;
    let mut begun = Begun::on_file(&upstream).await;
    begun.kill_the_first().await;
    begun.continues_at_the_second().await;
    assert_eq!(
        (
            count(&upstream, is_new_request),
            count(&upstream, is_reading_on)
        ),
        (2, 1)
    );
    assert_eq!(upstream.requests().len(), 3);
    let attempts = &begun.folding.terminal.as_ref().unwrap().attempts;
    let causes: Vec<AttemptCause> = attempts
        .iter()
        .map(relight::internals::grpc::v1::Attempt::cause)
        .collect();
    assert_eq!(
        causes,
        [
            AttemptCause::First,
            AttemptCause::Continue,
            AttemptCause::Retry
        ]
    );
    assert!(
        attempts[1].message.contains("status 404"),
        "{}",
        attempts[1].message
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_without_the_capability_any_more_is_called_anew() {
    let _room = room().await;
    let upstream = provider(Kept::Whole).await;
    let mut begun = Begun::on_file(&upstream).await;
    begun.second.kill().await;
    begun.second = Process::start(
        &begun
            .config
            .replace("background: true", "background: false"),
    )
    .await;
    begun.kill_the_first().await;
    begun.continues_at_the_second().await;
    assert_eq!(
        (
            count(&upstream, is_new_request),
            count(&upstream, is_reading_on)
        ),
        (2, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_slept_too_long_does_not_take_the_answer_from_the_next_one() {
    let _room = room().await;
    let upstream = provider(Kept::Whole).await;
    let mut begun = Begun::on_file(&upstream).await;
    begun.stop_the_first().await;
    let mut early = begun.folding.clone();
    begun.continues_at_the_second().await;
    begun.was_read_on(&upstream);
    begun.first.signal(Signal::CONT);
    // It cancels the one that it had requested ...
    upstream.await_cancel(1).await;
    let ended = early.follow(&mut begun.stream, usize::MAX);
    tokio::time::timeout(PATIENCE, ended).await.unwrap();
    early.insist(&begun.second.recovery()).await;
    assert_eq!(
        (early.text().as_str(), &early.terminal),
        (ANSWER, &begun.folding.terminal)
    );
    // ... and serves others, and has nothing cancelled by then.
    let another = Folding::all(
        begun.first.recovery(),
        streaming("Hello", RewindMode::Rewind),
    );
    let (another, _) = tokio::time::timeout(PATIENCE, another)
        .await
        .expect("it serves");
    assert_eq!(another.text(), ANSWER);
    assert_eq!(count(&upstream, is_cancel), 0, "{:#?}", upstream.requests());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_that_was_taken_over_is_cancelled_when_it_has_no_reader_any_more() {
    let _room = room().await;
    let upstream = provider(Kept::Silent).await;
    let mut begun = Begun::on_file(&upstream).await;
    begun.kill_the_first().await;
    let reading_on = async {
        while count(&upstream, is_reading_on) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, reading_on)
        .await
        .expect("it is taken over");
    assert_eq!(
        begun.cancel_at_the_second().await,
        InvocationState::Cancelled
    );
    assert!(is_cancel(&upstream.await_request(3).await));
    begun.folding.insist(&begun.second.recovery()).await;
    assert!(matches!(
        begun.folding.terminal.unwrap().outcome,
        Some(Outcome::Cancelled(_))
    ));
    assert_eq!(count(&upstream, is_new_request), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_whose_invocation_is_cancelled_before_its_takeover_is_cancelled() {
    let _room = room().await;
    let upstream = provider(Kept::Silent).await;
    let mut begun = Begun::on_file(&upstream).await;
    // Recorded in the journal while no owner is there to see it.
    begun.stop_the_first().await;
    assert_eq!(begun.cancel_at_the_second().await, InvocationState::Running);
    begun.first.kill().await;
    let client = begun.second.recovery();
    tokio::time::timeout(PATIENCE, begun.folding.insist(&client))
        .await
        .expect("it is taken over");
    assert!(matches!(
        begun.folding.terminal.unwrap().outcome,
        Some(Outcome::Cancelled(_))
    ));
    assert!(is_cancel(&upstream.await_request(2).await));
    assert_eq!(
        (count(&upstream, is_new_request), upstream.requests().len()),
        (1, 2)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_stopped_leaves_its_response_to_the_next_one() {
    let _room = room().await;
    let upstream = provider(Kept::Whole).await;
    let mut begun = Begun::on_file(&upstream).await;
    begun.first.signal(Signal::TERM);
    begun.folding.follow(&mut begun.stream, usize::MAX).await;
    begun.continues_at_the_second().await;
    begun.was_read_on(&upstream);
}
