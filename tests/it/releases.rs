//! A new version of a target is tried with a share of the traffic, and rolled back when it is worse
//! than the one before.

mod replicas;

use std::time::Duration;

use relight::internals::grpc::v1::{
    ListReleasesRequest, PinReleaseRequest, PromoteReleaseRequest, Release, ReleaseAction,
    ReleaseChannel, ReleaseLane, ReleaseState, RollbackReleaseRequest,
    invoke_with_recovery_response::Outcome, recovery_event::Body, watch_recovery_request::Start,
};
use tonic::Code;

use crate::support::{
    binary::run,
    http::metrics,
    relight::Relight,
    upstream::{Reply, Request, Upstream},
};

/// Longest time until something is seen that happens in the background.
const PATIENCE: Duration = Duration::from_secs(20);

/// A stable target `fast` and its candidate `next`, each with an upstream of its own.
struct Trial {
    relight: Relight,
    stable: Upstream,
    candidate: Upstream,
    config: String,
}

impl Trial {
    async fn start(releases: &str, more: &str) -> Self {
        let (stable, candidate) = (Upstream::start().await, Upstream::start().await);
        let config = format!(
            "providers:\n  old: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n  \
             new: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n\
             targets:\n  fast: {{ provider: old, model: m-1 }}\n  next: {{ provider: new, model: m-2 }}\n\
             routes: {{ r: {{ targets: [fast] }} }}\n\
             circuit: {{ mode: \"off\" }}\n\
             releases: {{ subjects: {{ fast: {{ candidate: next, share: 1.0 }} }}, {releases} }}\n{more}",
            stable.base_url(),
            candidate.base_url()
        );
        let relight = Relight::start(&config).await;
        let trial = Self {
            relight,
            stable,
            candidate,
            config,
        };
        trial
            .until("there are two releases", |releases| releases.len() == 2)
            .await;
        trial
    }

    async fn releases(&self) -> Vec<Release> {
        releases(&self.relight).await
    }

    async fn until(&self, what: &str, holds: impl Fn(&[Release]) -> bool) -> Vec<Release> {
        until(&self.relight, what, holds).await
    }

    /// One call, and whether it was answered.
    async fn call(&self) -> bool {
        matches!(
            self.relight.ask("Why?").await.outcome,
            Some(Outcome::Completion(_))
        )
    }

    /// What the command shows of them.
    async fn shown(&self) -> String {
        let ran = run(&[
            "releases",
            "--address",
            &self.relight.running.address.to_string(),
            "show",
            "fast",
        ])
        .await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        ran.out
    }

    async fn candidate_id(&self) -> String {
        candidate(&self.releases().await).id.clone()
    }
}

async fn releases(relight: &Relight) -> Vec<Release> {
    relight
        .admin()
        .list_releases(ListReleasesRequest::default())
        .await
        .unwrap()
        .into_inner()
        .releases
}

async fn until(relight: &Relight, what: &str, holds: impl Fn(&[Release]) -> bool) -> Vec<Release> {
    let seen = async {
        loop {
            let now = releases(relight).await;
            if holds(&now) {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, seen).await {
        Ok(seen) => seen,
        Err(tokio::time::error::Elapsed { .. }) => panic!("{what}: {:#?}", releases(relight).await),
    }
}

fn candidate(releases: &[Release]) -> &Release {
    releases
        .iter()
        .find(|release| release.channel() == ReleaseChannel::Candidate)
        .unwrap()
}

fn is_rolled_back(releases: &[Release]) -> bool {
    candidate(releases).state() == ReleaseState::RolledBack
}

#[tokio::test]
async fn a_broken_candidate_is_rolled_back_after_three_calls_and_no_caller_notices() {
    let trial = Trial::start("", "").await;
    let mut watch = trial.relight.watch(Start::Live(true)).await;
    trial.candidate.otherwise(Reply::status(500));
    let mut calls = 0;
    while !is_rolled_back(&trial.releases().await) {
        assert!(
            trial.call().await,
            "the stable release is the candidate's fallback"
        );
        calls += 1;
        assert!(calls <= 10, "{:#?}", trial.releases().await);
        tokio::time::sleep(Duration::from_millis(120)).await;
    }
    let attempts = trial.candidate.requests().len();
    assert!(
        (3..=8).contains(&attempts) && calls <= 4,
        "rolled back after {attempts} failures in {calls} calls"
    );
    let releases = trial.releases().await;
    let decision = candidate(&releases).decisions.last().unwrap();
    assert_eq!(
        (decision.action(), decision.provisional),
        (ReleaseAction::RolledBack, false),
        "{decision:?}"
    );
    assert!(trial.call().await);
    assert_eq!(
        trial.candidate.requests().len(),
        attempts,
        "nothing is sent to it any more"
    );
    let event = watch.until("release_rolled_back").await;
    assert!(
        event.display_text.starts_with("Release next@"),
        "{}",
        event.display_text
    );
    let metrics = metrics(trial.relight.running.admin_address).await;
    assert!(
        metrics.contains("relight_release_decisions_total{action=\"rolled_back\""),
        "{metrics}"
    );
    let shown = trial.shown().await;
    assert!(
        shown.contains("rolled back") && shown.contains("failures in a row"),
        "{shown}"
    );
    let row = shown
        .lines()
        .find(|line| line.contains("next@") && line.contains("candidate"))
        .unwrap();
    let success = row
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .nth(7);
    assert_eq!(
        success,
        Some("0 %"),
        "the figures that it was rolled back for: {shown}"
    );
}

#[tokio::test]
async fn a_candidate_that_alone_fails_is_rolled_back_at_the_provider_of_the_stable_release() {
    let upstream = Upstream::start().await;
    let fails = |request: &Request| {
        if request.body["model"] == "m-2" {
            Reply::status(500)
        } else {
            Reply::text("Fine.")
        }
    };
    upstream.answering(fails);
    let relight = Relight::start(&format!(
        "providers:\n  one: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n\
         targets:\n  fast: {{ provider: one, model: m-1 }}\n  next: {{ provider: one, model: m-2 }}\n\
         routes: {{ r: {{ targets: [fast] }} }}\ncircuit: {{ mode: \"off\" }}\n\
         releases: {{ subjects: {{ fast: {{ candidate: next, share: 0.5 }} }} }}\n",
        upstream.base_url()
    ))
    .await;
    until(&relight, "there are two releases", |it| it.len() == 2).await;
    let mut calls = 0;
    while !is_rolled_back(&releases(&relight).await) {
        relight.ask("Why?").await;
        calls += 1;
        assert!(calls <= 60, "{:#?}", releases(&relight).await);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
}

#[tokio::test]
async fn an_outage_of_their_common_provider_leaves_the_candidate_alone() {
    let upstream = Upstream::start().await;
    upstream.otherwise(Reply::status(500));
    let relight = Relight::start(&format!(
        "providers:\n  one: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }}\n\
         targets:\n  fast: {{ provider: one, model: m-1 }}\n  next: {{ provider: one, model: m-2 }}\n\
         routes: {{ r: {{ targets: [fast] }} }}\ncircuit: {{ mode: \"off\" }}\n\
         policies: {{ standard: {{ retry: {{ backoff: {{ base: 1ms, cap: 2ms }} }} }} }}\n\
         releases: {{ subjects: {{ fast: {{ candidate: next, share: 0.5 }} }} }}\n",
        upstream.base_url()
    ))
    .await;
    until(&relight, "there are two releases", |it| it.len() == 2).await;
    for _ in 0..20 {
        relight.ask("Why?").await;
    }
    upstream.otherwise(Reply::text("Fine."));
    for _ in 0..20 {
        relight.ask("Why?").await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let seen = releases(&relight).await;
    assert_eq!(candidate(&seen).state(), ReleaseState::Active, "{seen:#?}");
}

#[tokio::test]
async fn a_pinned_candidate_is_reported_and_left_alone() {
    let trial = Trial::start("mode: literal", "").await;
    let pin = PinReleaseRequest {
        subject: "fast".to_owned(),
        pinned: true,
        reason: String::new(),
    };
    trial.relight.admin().pin_release(pin).await.unwrap();
    let mut watch = trial.relight.watch(Start::Live(true)).await;
    trial.candidate.otherwise(Reply::status(500));
    for _ in 0..3 {
        assert!(trial.call().await);
    }
    let event = watch.until("release_decided").await;
    let Some(Body::ReleaseDecided(decided)) = event.body else {
        panic!("{event:?}")
    };
    assert_eq!(decided.decision.unwrap().action(), ReleaseAction::Held);
    assert_eq!(
        candidate(&trial.releases().await).state(),
        ReleaseState::Active
    );
}

#[tokio::test]
async fn literal_thresholds_hold_one_below_and_one_above() {
    let trial = Trial::start(
        "mode: literal",
        "policies: { standard: { retry: { max_retries: 0 } } }\n",
    )
    .await;
    trial
        .candidate
        .push(Reply::status(500))
        .push(Reply::status(500))
        .otherwise(Reply::text("Fine."));
    for answered in [false, false, true] {
        assert_eq!(trial.call().await, answered);
    }
    let seen = trial
        .until("three executions", |it| {
            candidate(it).evidence.as_ref().unwrap().executions == 3
        })
        .await;
    assert_eq!(
        candidate(&seen).state(),
        ReleaseState::Active,
        "two failures in a row are one too few"
    );
    trial.candidate.otherwise(Reply::status(500));
    for _ in 0..3 {
        assert!(!trial.call().await);
    }
    let seen = trial.until("it is rolled back", is_rolled_back).await;
    let decision = candidate(&seen).decisions.last().unwrap();
    assert_eq!(decision.lane(), ReleaseLane::Immediate);
    assert_eq!(decision.evidence.as_ref().unwrap().consecutive_failures, 3);
}

#[tokio::test]
async fn an_operator_rolls_back_pins_and_promotes() {
    let trial = Trial::start("", "").await;
    let (id, mut admin) = (trial.candidate_id().await, trial.relight.admin());
    assert!(trial.call().await);
    assert_eq!(trial.candidate.requests().len(), 1);
    let request = RollbackReleaseRequest {
        release_id: id.clone(),
        reason: "too slow".to_owned(),
        pin: false,
    };
    let rolled_back = admin.rollback_release(request).await.unwrap().into_inner();
    assert_eq!(
        rolled_back.release.unwrap().state(),
        ReleaseState::RolledBack
    );
    assert!(trial.call().await);
    assert_eq!(
        (
            trial.candidate.requests().len(),
            trial.stable.requests().len()
        ),
        (1, 1)
    );
    let pin = PinReleaseRequest {
        subject: "fast".to_owned(),
        pinned: true,
        reason: String::new(),
    };
    assert!(
        admin
            .pin_release(pin)
            .await
            .unwrap()
            .into_inner()
            .releases
            .iter()
            .all(|release| release.pinned)
    );
    let request = PromoteReleaseRequest {
        release_id: id.clone(),
        reason: String::new(),
        pin: false,
    };
    let promoted = admin
        .promote_release(request)
        .await
        .unwrap()
        .into_inner()
        .release
        .unwrap();
    assert_eq!(
        (promoted.channel(), promoted.traffic_share, promoted.pinned),
        (ReleaseChannel::Stable, 1.0, false)
    );
    assert_eq!(
        promoted.decisions.last().unwrap().action(),
        ReleaseAction::Promoted
    );
    assert!(
        trial
            .releases()
            .await
            .iter()
            .any(|release| release.state() == ReleaseState::Superseded)
    );
    assert!(trial.call().await);
    assert_eq!(
        trial.candidate.requests().len(),
        2,
        "it serves what names `fast`"
    );
    let shown = trial.shown().await;
    assert!(
        shown.contains("rolled back by an operator: too slow\n"),
        "{shown}"
    );
    assert!(
        shown.contains("promoted by an operator\n"),
        "no reason was given: {shown}"
    );
    let unknown = RollbackReleaseRequest {
        release_id: "none@0".to_owned(),
        ..RollbackReleaseRequest::default()
    };
    assert_eq!(
        admin.rollback_release(unknown).await.unwrap_err().code(),
        Code::NotFound
    );
    let stable = RollbackReleaseRequest {
        release_id: id,
        ..RollbackReleaseRequest::default()
    };
    assert_eq!(
        admin.rollback_release(stable).await.unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[tokio::test]
async fn what_was_decided_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let journal = format!(
        "journal: {{ store: \"sqlite:{}\" }}\n",
        folder.path().join("relight.db").display()
    );
    let trial = Trial::start("", &journal).await;
    let id = trial.candidate_id().await;
    let request = RollbackReleaseRequest {
        release_id: id,
        reason: "by hand".to_owned(),
        pin: true,
    };
    trial
        .relight
        .admin()
        .rollback_release(request)
        .await
        .unwrap();
    let Trial {
        relight,
        candidate: upstream,
        config,
        ..
    } = trial;
    relight.running.shutdown().await;
    let again = Relight::start(&config).await;
    let seen = until(&again, "it is known again", |releases| releases.len() == 2).await;
    let known = candidate(&seen);
    assert!(
        known.state() == ReleaseState::RolledBack && known.pinned,
        "{known:?}"
    );
    assert_eq!(known.decisions.last().unwrap().reason, "by hand");
    again.ask("Why?").await;
    assert!(upstream.requests().is_empty());
}

#[tokio::test]
async fn a_target_has_a_system_prompt_that_makes_another_release_of_it() {
    let upstream = Upstream::start().await;
    let relight = Relight::start(&format!(
        "providers: {{ p: {{ dialect: openai_chat, base_url: \"{}\", api_key: k }} }}\n\
         targets: {{ main: {{ provider: p, model: m, system_prompt: \"Be brief.\" }} }}\n\
         routes: {{ r: {{ targets: [main] }} }}\n",
        upstream.base_url()
    ))
    .await;
    relight.ask("Why?").await;
    let body = upstream.requests().remove(0).body;
    assert_eq!(
        body["messages"][0],
        serde_json::json!({ "role": "system", "content": "Be brief." })
    );
    assert_eq!(body["messages"].as_array().unwrap().len(), 2);
}
