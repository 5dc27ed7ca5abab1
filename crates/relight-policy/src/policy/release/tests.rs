//! Tests of `release`: each lane at its exact threshold, each guard, and what an operator does.

#![expect(clippy::float_cmp, reason = "shares are set and not computed")]

mod compared;
mod literal;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{
    ReleaseAction, ReleaseDecision, ReleaseLane, ReleaseMode, ReleaseMonitor, ReleaseOutcome,
    ReleasePolicy, ReleaseRefusal, ReleaseState, ReleaseVersion,
};
use crate::domain::failure::FailureClass;

/// A subject with a candidate that takes half of the traffic, and the time.
struct Trial {
    monitor: ReleaseMonitor,
    policy: ReleasePolicy,
    now: Timestamp,
    stable_is_healthy: bool,
}

fn version(target: &str) -> ReleaseVersion {
    ReleaseVersion {
        target: target.to_owned(),
        endpoint: format!("http://{target}"),
        ..ReleaseVersion::default()
    }
}

impl Trial {
    fn new(mode: ReleaseMode) -> Self {
        let policy = ReleasePolicy {
            mode,
            ..ReleasePolicy::default()
        };
        let now = Timestamp::UNIX_EPOCH;
        let mut monitor = ReleaseMonitor::new("search", version("old"), now);
        monitor.configure(&version("old"), Some((&version("new"), 0.5)), now);
        Self {
            monitor,
            policy,
            now,
            stable_is_healthy: true,
        }
    }

    fn literal() -> Self {
        Self::new(ReleaseMode::Literal)
    }

    fn outcome(&mut self, failure: Option<FailureClass>, signature: &str) -> ReleaseOutcome {
        self.now += SignedDuration::from_secs(1);
        ReleaseOutcome {
            at: self.now,
            failure,
            is_flawed: false,
            attempt: 1,
            duration_ms: failure.is_none().then_some(100),
            signature: signature.to_owned(),
            session: None,
        }
    }

    /// The stable release fails first and succeeds then; the last decision.
    fn stable(&mut self, good: u32, bad: u32) -> Option<ReleaseDecision> {
        (0..good + bad).fold(None, |_, n| {
            let outcome = self.outcome((n < bad).then_some(FailureClass::ToolFailed), "");
            self.stable_takes(&outcome)
        })
    }

    fn stable_takes(&mut self, outcome: &ReleaseOutcome) -> Option<ReleaseDecision> {
        let id = self.monitor.stable.id.clone();
        self.monitor
            .observe(&self.policy, &id, outcome, self.stable_is_healthy)
    }

    fn take(&mut self, outcome: &ReleaseOutcome) -> Option<ReleaseDecision> {
        let id = self.monitor.candidate.as_ref().unwrap().id.clone();
        self.monitor
            .observe(&self.policy, &id, outcome, self.stable_is_healthy)
    }

    fn succeeds(&mut self, times: u32) -> Option<ReleaseDecision> {
        (0..times).fold(None, |_, _| {
            let outcome = self.outcome(None, "");
            self.take(&outcome)
        })
    }

    fn fails(&mut self, class: FailureClass, signature: &str) -> Option<ReleaseDecision> {
        let outcome = self.outcome(Some(class), signature);
        self.take(&outcome)
    }

    fn fails_times(&mut self, times: u32) -> Option<ReleaseDecision> {
        (0..times).fold(None, |_, _| self.fails(FailureClass::ToolFailed, ""))
    }

    fn wait(&mut self, time: Duration) -> &mut Self {
        self.now += SignedDuration::try_from(time).unwrap();
        self
    }

    fn state(&self) -> ReleaseState {
        self.monitor.candidate.as_ref().unwrap().state
    }
}

fn lane(decision: Option<&ReleaseDecision>) -> Option<(ReleaseLane, bool)> {
    decision
        .filter(|it| it.action == ReleaseAction::RolledBack)
        .map(|it| (it.lane.unwrap(), it.provisional))
}

#[test]
fn a_run_of_failures_while_the_stable_release_does_well_rolls_back_at_once() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(200, 4);
    assert_eq!(trial.fails_times(2), None);
    assert_eq!(trial.stable(1, 0), None, "two may be chance");
    assert_eq!(
        lane(trial.fails_times(1).as_ref()),
        Some((ReleaseLane::Evidence, false))
    );
}

#[test]
fn what_the_stable_release_shows_too_is_no_reason() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(200, 2);
    trial.succeeds(5);
    for _ in 0..15 {
        trial.stable(0, 1);
        assert_eq!(trial.fails_times(1), None);
    }
    assert_eq!(trial.state(), ReleaseState::Active);
}

#[test]
fn repeats_of_one_session_are_no_reason() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(100, 0);
    trial.succeeds(1);
    for _ in 0..8 {
        trial.stable(1, 0);
        let outcome = ReleaseOutcome {
            session: Some(7),
            ..trial.outcome(Some(FailureClass::ToolFailed), "")
        };
        assert_eq!(trial.take(&outcome), None);
    }
}

#[test]
fn a_signature_that_the_stable_release_does_not_show_is_final_after_two() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(5, 0);
    trial.succeeds(20);
    assert_eq!(trial.fails(FailureClass::ToolFailed, "-32602"), None);
    assert_eq!(
        lane(trial.fails(FailureClass::ToolFailed, "-32602").as_ref()),
        Some((ReleaseLane::Immediate, false))
    );
}

impl Trial {
    /// Returns a stable release that fails one time in twenty, and a candidate that fails one time
    /// in three, until something is decided.
    fn is_doubted(&mut self) -> Option<ReleaseDecision> {
        (0..60).find_map(|n| {
            let decided = self.stable(u32::from(n % 20 != 0), u32::from(n % 20 == 0));
            decided.or_else(|| {
                if n % 3 == 0 {
                    self.fails_times(1)
                } else {
                    self.succeeds(1)
                }
            })
        })
    }
}

#[test]
fn a_provisional_rollback_leaves_a_canary_by_which_it_is_cleared_once() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(190, 10);
    let provisional = trial.is_doubted();
    assert_eq!(
        lane(provisional.as_ref()),
        Some((ReleaseLane::Standard, true)),
        "{provisional:?}"
    );
    assert_eq!(
        (trial.state(), trial.monitor.candidate_share()),
        (ReleaseState::Provisional, 0.05)
    );
    trial.wait(Duration::from_mins(11));
    let cleared = trial.succeeds(10).unwrap();
    assert_eq!(cleared.action, ReleaseAction::Reinstated);
    assert_eq!(
        (trial.state(), trial.monitor.candidate_share()),
        (ReleaseState::Active, 0.5)
    );
    trial.wait(Duration::from_mins(11));
    assert!(
        trial
            .is_doubted()
            .is_none_or(|decision| !decision.provisional),
        "it is reinstated at most once"
    );
}

#[test]
fn within_the_cool_down_only_a_final_rollback_is_made() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(190, 10);
    trial.is_doubted();
    assert_eq!(trial.state(), ReleaseState::Provisional);
    assert_eq!(trial.succeeds(20), None, "it is not cleared so soon");
    assert_eq!(trial.fails(FailureClass::ToolFailed, "TypeError"), None);
    assert_eq!(
        lane(trial.fails(FailureClass::ToolFailed, "TypeError").as_ref()),
        Some((ReleaseLane::Immediate, false))
    );
}

#[test]
fn a_breaking_schema_rolls_back_before_a_single_failure() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    let id = trial.monitor.candidate.as_ref().unwrap().id.clone();
    let decision =
        trial
            .monitor
            .contract_broken(&trial.policy, &id, "`limit` is gone", true, trial.now);
    assert_eq!(
        lane(decision.as_ref()),
        Some((ReleaseLane::Contract, false))
    );
    assert_eq!(
        trial
            .monitor
            .contract_broken(&trial.policy, &id, "`limit` is gone", true, trial.now),
        None,
        "once"
    );
}

#[test]
fn nothing_is_rolled_back_to_what_is_not_healthy_and_it_is_said_once_a_run() {
    let mut trial = Trial::literal();
    trial.stable_is_healthy = false;
    assert_eq!(trial.fails_times(2), None);
    let held = trial.fails_times(1).unwrap();
    assert_eq!(
        (held.action, trial.state()),
        (ReleaseAction::Held, ReleaseState::Active)
    );
    assert_eq!(trial.fails_times(1), None);
}

#[test]
fn a_pinned_subject_is_reported_and_left_alone() {
    let mut trial = Trial::literal();
    trial.monitor.pinned = true;
    let held = trial.fails_times(3).unwrap();
    assert_eq!(
        (held.action, held.lane),
        (ReleaseAction::Held, Some(ReleaseLane::Immediate))
    );
    assert_eq!(trial.monitor.candidate_share(), 0.5);
}

#[test]
fn three_automatic_rollbacks_within_a_day_freeze_promotion_and_a_pin_overrides_that() {
    let mut trial = Trial::literal();
    for round in 0..3 {
        let next = version(&format!("new-{round}"));
        trial
            .monitor
            .configure(&version("old"), Some((&next, 0.5)), trial.now);
        assert!(trial.fails_times(3).is_some());
        trial.wait(Duration::from_hours(7));
    }
    trial
        .monitor
        .configure(&version("old"), Some((&version("new-4"), 0.5)), trial.now);
    let id = version("new-4").id();
    let policy = trial.policy.clone();
    let now = trial.now;
    assert_eq!(
        trial
            .monitor
            .promote(&policy, &id, "", false, now)
            .unwrap_err(),
        ReleaseRefusal::Frozen
    );
    assert!(
        trial
            .monitor
            .promote(&policy, &id, "tested by hand", true, now)
            .is_ok()
    );
    assert!(trial.monitor.pinned && trial.monitor.stable.id == id);
    assert!(
        !trial
            .monitor
            .is_frozen(now + SignedDuration::from_hours(24)),
        "a day later it is over"
    );
}

#[test]
fn an_unused_release_is_reported_once_and_not_rolled_back() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    assert_eq!(trial.monitor.unused(&trial.policy, trial.now), None);
    trial.wait(Duration::from_hours(721));
    let reported = trial.monitor.unused(&trial.policy, trial.now).unwrap();
    assert_eq!(
        (reported.action, reported.lane, trial.state()),
        (ReleaseAction::Held, None, ReleaseState::Active)
    );
    assert_eq!(trial.monitor.unused(&trial.policy, trial.now), None);
}

#[test]
fn an_operator_rolls_back_and_promotes_and_the_configuration_names_the_next() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    let old = version("old").id();
    let new = version("new").id();
    let policy = trial.policy.clone();
    let now = trial.now;
    let monitor = &mut trial.monitor;
    assert_eq!(
        monitor
            .roll_back(&policy, &old, "", false, true, now)
            .unwrap_err(),
        ReleaseRefusal::Stable
    );
    assert_eq!(
        monitor
            .roll_back(&policy, "other", "", false, true, now)
            .unwrap_err(),
        ReleaseRefusal::Unknown
    );
    assert_eq!(
        monitor
            .roll_back(&policy, &new, "", false, false, now)
            .unwrap_err(),
        ReleaseRefusal::NothingHealthy
    );
    let decision = monitor
        .roll_back(&policy, &new, "wrong prompt", true, true, now)
        .unwrap();
    assert_eq!(
        (decision.lane, decision.reason.as_str()),
        (None, "wrong prompt")
    );
    assert!(monitor.pinned && monitor.candidate_share() == 0.0);
    monitor
        .promote(&policy, &new, "mended", false, now)
        .unwrap();
    assert_eq!(
        (monitor.stable.id.as_str(), monitor.pinned),
        (new.as_str(), false)
    );
    // The configuration still says so; the promotion stays.
    monitor.configure(&version("old"), Some((&version("new"), 0.5)), now);
    assert_eq!(
        (monitor.stable.id.as_str(), monitor.candidate_share()),
        (new.as_str(), 0.0)
    );
    monitor.configure(&version("new"), Some((&version("newer"), 0.2)), now);
    assert_eq!(
        (monitor.stable.id.as_str(), monitor.candidate_share()),
        (new.as_str(), 0.2)
    );
    assert_eq!(monitor.past.len(), 1);
}

#[test]
fn everything_that_is_known_survives_being_written() {
    let mut trial = Trial::new(ReleaseMode::Adaptive);
    trial.stable(50, 3);
    trial.succeeds(3);
    trial.fails(FailureClass::ToolFailed, "TypeError");
    let written = |monitor: &ReleaseMonitor| serde_json::to_string(monitor).unwrap();
    let read = |text: &str| serde_json::from_str::<ReleaseMonitor>(text).unwrap();
    let once = read(&written(&trial.monitor));
    // The last digit of a number may change when it is first written.
    assert_eq!(read(&written(&once)), once);
    assert_eq!(once.candidate.as_ref().unwrap().evidence.run_length(), 1);
    assert!(written(&once).len() < 64 * 1024);
}
