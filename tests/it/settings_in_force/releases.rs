//! Releases: the same outcomes of a candidate before and after a setting is changed, and what was
//! decided.

#![expect(clippy::float_cmp, reason = "shares are set and not computed")]

use std::time::Duration;

use relight::internals::grpc::v1::{
    ListReleasesRequest, Release, ReleaseAction, ReleaseChannel, ReleaseDecision as Decided,
    ReleaseLane, ReleaseState,
};
use serde_json::{Value, json};

use crate::support::{
    reloaded::{Reloaded, merge},
    upstream::{Reply, Upstream},
};

/// Longest time until outcomes are judged.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server whose target `main` has a candidate on a provider of its own, and the number of the
/// next candidate.
struct Trials {
    server: Reloaded,
    candidate: Upstream,
    next: u32,
}

impl Trials {
    async fn start() -> Self {
        let candidate = Upstream::start().await;
        let server = Reloaded::start(json!({
            "providers": { "q": { "dialect": "openai_chat", "base_url": candidate.base_url(), "api_key": "k" } },
            "targets": { "next": { "provider": "q", "model": "m-0" }, "other": { "provider": "q", "model": "o" } },
            "circuit": { "mode": "off" },
            // What fails is called elsewhere at once, if at all.
            "policies": { "standard": { "retry": {
                "max_retries": 0, "prefer_same_target": "0ms", "backoff": { "base": "1s", "jitter": "none" },
            } } },
            "releases": { "subjects": { "main": { "candidate": "next", "share": 0.0 } } },
        }))
        .await;
        let trials = Self {
            server,
            candidate,
            next: 1,
        };
        // A baseline: the stable release succeeds in all of twelve executions.
        for _ in 0..12 {
            trials.server.invoke().await;
        }
        trials
            .until(|seen| seen.iter().any(|one| executions(one) == 12))
            .await;
        trials
    }

    async fn releases(&self) -> Vec<Release> {
        self.server
            .admin()
            .list_releases(ListReleasesRequest::default())
            .await
            .unwrap()
            .into_inner()
            .releases
    }

    async fn until(&self, holds: impl Fn(&[Release]) -> bool) -> Vec<Release> {
        let seen = async {
            loop {
                let now = self.releases().await;
                if holds(&now) {
                    return now;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        match tokio::time::timeout(PATIENCE, seen).await {
            Ok(seen) => seen,
            Err(tokio::time::error::Elapsed { .. }) => {
                panic!("not seen: {:#?}", self.releases().await)
            }
        }
    }

    /// Plays a new candidate under these settings (`F` fails, `T` fails with a signature, `S`
    /// succeeds), and returns it as it is then. In adaptive mode the stable release takes over each
    /// call that fails, and succeeds: without that nothing is compared.
    async fn play(&mut self, settings: Value, outcomes: &str) -> Release {
        let model = format!("c-{}", self.next);
        self.next += 1;
        let mut releases = json!({
            "mode": "literal", "consecutive": 100, "drop": 1.0, "min_executions": 10,
            "subjects": { "main": { "candidate": "next", "share": 1.0 } },
        });
        merge(&mut releases, settings);
        let is_compared = releases["mode"] == "adaptive";
        self.server.config["releases"] = json!({});
        self.server
            .change(json!({
                "targets": { "next": { "model": model.clone() } },
                "policies": { "standard": { "retry": { "max_retries": u32::from(is_compared) } } },
                "releases": releases,
            }))
            .await;
        let seen = self
            .until(|seen| {
                seen.iter()
                    .any(|one| one.model == model && executions(one) == 0)
            })
            .await;
        let mut of_stable = stable_executions(&seen);
        for (n, outcome) in outcomes.chars().enumerate() {
            self.candidate.push(match outcome {
                'F' => Reply::status(500),
                'T' => Reply::body(
                    400,
                    &[("content-type", "application/json")],
                    SIGNED.as_bytes(),
                ),
                _ => Reply::text("Fine."),
            });
            self.server.invoke().await;
            of_stable += u64::from(is_compared && outcome != 'S');
            let seen = |one: &Release| {
                one.model == model && (executions(one) > n as u64 || is_rolled_back(one))
            };
            let now = self
                .until(|all| stable_executions(all) >= of_stable && all.iter().any(seen))
                .await;
            if now
                .iter()
                .any(|one| one.model == model && is_rolled_back(one))
            {
                break;
            }
        }
        self.releases()
            .await
            .into_iter()
            .find(|release| release.model == model)
            .unwrap()
    }
}

const SIGNED: &str =
    r#"{"error":{"message":"Unsupported parameter: 'seed'","code":"unsupported_parameter"}}"#;

fn executions(release: &Release) -> u64 {
    release
        .evidence
        .as_ref()
        .map_or(0, |evidence| evidence.executions)
}

fn stable_executions(all: &[Release]) -> u64 {
    all.iter()
        .filter(|one| one.channel() == ReleaseChannel::Stable)
        .map(executions)
        .sum()
}

fn is_rolled_back(release: &Release) -> bool {
    matches!(
        release.state(),
        ReleaseState::RolledBack | ReleaseState::ProvisionallyRolledBack
    )
}

#[tokio::test]
async fn a_candidate_is_rolled_back_as_each_changed_setting_says() {
    let mut trials = Trials::start().await;
    for (setting, outcomes, stays, goes, lane) in [
        (
            json!({ "consecutive": [3, 2] }),
            "FF",
            ReleaseState::Active,
            ReleaseState::RolledBack,
            ReleaseLane::Immediate,
        ),
        (
            json!({ "min_executions": [5, 4], "drop": [0.15, 0.15] }),
            "FSSS",
            ReleaseState::Active,
            ReleaseState::RolledBack,
            ReleaseLane::Standard,
        ),
        (
            json!({ "drop": [0.3, 0.15], "min_executions": [4, 4] }),
            "FSSS",
            ReleaseState::Active,
            ReleaseState::RolledBack,
            ReleaseLane::Standard,
        ),
        (
            json!({ "mode": ["adaptive", "literal"], "drop": [0.15, 0.15], "min_executions": [4, 4] }),
            "SFFF",
            ReleaseState::ProvisionallyRolledBack,
            ReleaseState::RolledBack,
            ReleaseLane::Standard,
        ),
    ] {
        for (which, expected) in [(0, stays), (1, goes)] {
            let chosen = setting
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, values)| (name.clone(), values[which].clone()));
            let settings: Value = Value::Object(chosen.collect());
            let release = trials.play(settings.clone(), outcomes).await;
            assert_eq!(release.state(), expected, "{settings}: {release:#?}");
            let decided_by = release.decisions.last().map(Decided::lane);
            assert!(
                which == 0 || decided_by == Some(lane),
                "{settings}: {decided_by:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_candidate_that_fails_always_or_far_more_often_is_rolled_back_for_that() {
    let mut trials = Trials::start().await;
    for (mode, outcomes, lane) in [
        ("literal", "FFFFFFFF", ReleaseLane::Fast),
        ("adaptive", "SFFFFFFFFFFFFFFFFFFF", ReleaseLane::Evidence),
    ] {
        let release = trials.play(json!({ "mode": mode }), outcomes).await;
        assert_eq!(release.state(), ReleaseState::RolledBack, "{release:#?}");
        let decided_by = release.decisions.last().map(Decided::lane);
        assert_eq!(decided_by, Some(lane), "{release:#?}");
    }
}

#[tokio::test]
async fn a_canary_gets_the_changed_share_and_is_cleared_after_the_changed_time() {
    let mut trials = Trials::start().await;
    let doubtful = |canary_share: f64, cool_down: &str| {
        json!({
            "mode": "adaptive", "drop": 0.15, "min_executions": 4, "canary_share": canary_share, "cool_down": cool_down,
        })
    };
    let release = trials.play(doubtful(0.25, "10m"), "SFFF").await;
    assert_eq!(
        (release.state(), release.traffic_share),
        (ReleaseState::ProvisionallyRolledBack, 0.25)
    );
    for (cool_down, is_cleared) in [("10m", false), ("0s", true)] {
        let id = trials.play(doubtful(0.5, cool_down), "SFFF").await.id;
        let counted = |all: &[Release]| -> u64 {
            let of_trial = |one: &&Release| one.id == id || one.channel() == ReleaseChannel::Stable;
            all.iter().filter(of_trial).map(executions).sum()
        };
        let before = counted(&trials.releases().await);
        for _ in 0..60 {
            trials.server.invoke().await;
        }
        // One that is not counted by then would count for the next candidate.
        let seen = trials.until(|all| counted(all) == before + 60).await;
        let release = seen.iter().find(|one| one.id == id).unwrap();
        let cleared = release
            .decisions
            .iter()
            .any(|decision| decision.action() == ReleaseAction::Reinstated);
        assert_eq!(cleared, is_cleared, "{cool_down}: {release:#?}");
    }
}

#[tokio::test]
async fn the_changed_candidate_takes_the_changed_share() {
    let mut trials = Trials::start().await;
    trials.server.invoke().await;
    assert!(trials.candidate.requests().is_empty(), "its share is 0");
    for (candidate, model) in [("next", "m-0"), ("other", "o")] {
        let subjects = json!({ "main": { "candidate": candidate, "share": 1.0 } });
        trials
            .server
            .change(json!({ "releases": { "subjects": subjects } }))
            .await;
        let is_on_trial = |one: &Release| {
            one.channel() == ReleaseChannel::Candidate
                && one.model == model
                && one.traffic_share == 1.0
        };
        trials.until(|all| all.iter().any(is_on_trial)).await;
        assert_eq!(trials.server.invoke().await.final_target, candidate);
    }
}
