//! The statistical promises as a seeded simulation: what is promised lies within the confidence
//! bounds of what happens.

use jiff::{SignedDuration, Timestamp};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use super::{
    ReleaseAction, ReleaseMonitor, ReleaseOutcome, ReleasePolicy, ReleaseState, ReleaseVersion,
    setting::DROP_EVIDENCE,
};
use crate::domain::failure::FailureClass;

/// Lives of a release that are played for each figure.
const LIVES: u32 = 1000;

/// One life of a candidate beside a stable release.
struct Life {
    monitor: ReleaseMonitor,
    policy: ReleasePolicy,
    rng: StdRng,
    at: Timestamp,
    /// Executions of the candidate so far.
    executions: u32,
    /// Executions of the candidate when it first lost traffic.
    caught: Option<u32>,
}

impl Life {
    /// A subject whose stable release fails this often and was used 200 times.
    fn new(seed: u32, natural: f64) -> Self {
        Self::with_share(seed, natural, 0.5)
    }

    /// The same, with a candidate that takes this share of the traffic.
    fn with_share(seed: u32, natural: f64, share: f64) -> Self {
        let policy = ReleasePolicy::default();
        let (at, version) = (Timestamp::UNIX_EPOCH, |name: &str| ReleaseVersion {
            target: name.to_owned(),
            endpoint: format!("http://{name}"),
            ..ReleaseVersion::default()
        });
        let mut monitor = ReleaseMonitor::new("subject", version("old"), at);
        monitor.configure(&version("old"), Some((&version("new"), share)), at);
        let rng = StdRng::seed_from_u64(u64::from(seed));
        let mut life = Self {
            monitor,
            policy,
            rng,
            at,
            executions: 0,
            caught: None,
        };
        for _ in 0..200 {
            life.stable(natural);
        }
        life
    }

    fn outcome(&mut self, failing: f64) -> ReleaseOutcome {
        self.at += SignedDuration::from_secs(7);
        let failure = self
            .rng
            .random_bool(failing)
            .then_some(FailureClass::ToolFailed);
        ReleaseOutcome {
            at: self.at,
            failure,
            is_flawed: false,
            attempt: 1,
            duration_ms: None,
            signature: String::new(),
            session: None,
        }
    }

    fn stable(&mut self, failing: f64) {
        let outcome = self.outcome(failing);
        let id = self.monitor.stable.id.clone();
        self.observe(&id, &outcome);
    }

    fn observe(&mut self, release: &str, outcome: &ReleaseOutcome) {
        let decided = self.monitor.observe(&self.policy, release, outcome, true);
        if decided.is_some_and(|decision| decision.action == ReleaseAction::RolledBack) {
            self.caught.get_or_insert(self.executions);
        }
    }

    /// One execution of the subject, by whichever release takes it.
    fn step(&mut self, stable_failing: f64, candidate_failing: f64) {
        let share = self.monitor.candidate_share();
        if !self.rng.random_bool(share) {
            return self.stable(stable_failing);
        }
        let outcome = self.outcome(candidate_failing);
        self.executions += 1;
        let id = self.monitor.candidate.as_ref().unwrap().id.clone();
        self.observe(&id, &outcome);
    }

    /// Plays until the candidate was executed so often, or a bound on the work.
    fn play(&mut self, executions: u32, stable_failing: f64, candidate_failing: f64) {
        for _ in 0..executions * 40 {
            if self.executions >= executions || self.state() == ReleaseState::RolledBack {
                return;
            }
            self.step(stable_failing, candidate_failing);
        }
    }

    fn state(&self) -> ReleaseState {
        self.monitor.candidate.as_ref().unwrap().state
    }

    /// Returns whether nothing but an operator gives it its traffic again.
    fn is_out_for_good(&self) -> bool {
        let candidate = self.monitor.candidate.as_ref().unwrap();
        candidate.state == ReleaseState::RolledBack
            || (candidate.state == ReleaseState::Provisional && candidate.reinstated)
    }
}

/// Returns the upper bound of a share that was seen `hits` times of [`LIVES`], three standard
/// deviations up (Wilson's).
fn at_most(hits: u32) -> f64 {
    let n = f64::from(LIVES);
    let z = 3.0;
    let share = f64::from(hits) / n;
    let spread = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    (share + z * z / (2.0 * n) + spread) / (1.0 + z * z / n)
}

fn lives(play: impl Fn(u32) -> bool) -> u32 {
    (0..LIVES).map(|seed| u32::from(play(seed))).sum()
}

#[test]
fn a_healthy_release_is_hardly_ever_rolled_back_for_good() {
    for natural in [0.05, 0.2] {
        let lost = lives(|seed| {
            let mut life = Life::new(seed, natural);
            life.play(400, natural, natural);
            life.is_out_for_good()
        });
        assert!(at_most(lost) <= 0.06, "{lost} of {LIVES} at {natural}");
    }
}

#[test]
fn a_healthy_release_is_doubted_no_more_often_than_is_stated() {
    // One in ten by the e-process, and one in fifty by a run of failures.
    let stated = 1.0 / DROP_EVIDENCE + 0.02;
    for (natural, share) in [(0.0, 0.5), (0.05, 0.1), (0.1, 0.5), (0.2, 0.1), (0.2, 0.5)] {
        let doubted = lives(|seed| {
            let mut life = Life::with_share(seed, natural, share);
            life.play(200, natural, natural);
            life.caught.is_some()
        });
        assert!(
            at_most(doubted) <= stated,
            "{doubted} of {LIVES} at {natural} with a share of {share}"
        );
    }
}

#[test]
fn a_release_that_fails_always_is_caught_within_five_executions_nine_times_of_ten() {
    for natural in [0.05, 0.2] {
        for (executions, late_at_most) in [(5, LIVES / 8), (12, LIVES / 50)] {
            // If the stable release fails meanwhile, an outage of both is as likely, and it takes
            // longer.
            let late = lives(|seed| {
                let mut life = Life::new(seed, natural);
                life.play(executions, natural, 1.0);
                life.caught.is_none()
            });
            assert!(
                late <= late_at_most,
                "{late} of {LIVES} after {executions} at {natural}"
            );
        }
    }
}

#[test]
fn a_release_that_is_born_in_an_outage_of_both_is_hardly_ever_taken_for_a_bad_one() {
    for natural in [0.05, 0.2] {
        let rolled_back = lives(|seed| {
            let mut life = Life::new(seed, natural);
            for _ in 0..16 {
                life.step(1.0, 1.0);
            }
            for _ in 0..10 {
                life.step(natural, natural);
            }
            life.caught.is_some()
        });
        assert!(
            at_most(rolled_back) <= 0.12,
            "{rolled_back} of {LIVES} at {natural}"
        );
    }
}

#[test]
fn a_drop_of_thirty_points_is_always_caught_and_half_of_the_time_soon() {
    // The fewer failures are natural, the sooner; what doubts fewer healthy ones takes longer.
    for (natural, median) in [(0.05, 14), (0.2, 24)] {
        let mut caught: Vec<u32> = (0..LIVES)
            .map(|seed| {
                let mut life = Life::new(seed, natural);
                life.play(400, natural, natural + 0.3);
                life.caught.unwrap_or(u32::MAX)
            })
            .collect();
        caught.sort_unstable();
        assert!(
            caught[caught.len() / 2] <= median,
            "median {} at {natural}",
            caught[caught.len() / 2]
        );
        assert_ne!(
            caught.last(),
            Some(&u32::MAX),
            "one was never caught at {natural}"
        );
    }
}

#[test]
fn an_outage_that_both_releases_share_is_hardly_ever_taken_for_a_bad_release() {
    for natural in [0.05, 0.2] {
        let rolled_back = lives(|seed| {
            let mut life = Life::new(seed, natural);
            life.play(30, natural, natural);
            life.caught = None;
            if life.state() != ReleaseState::Active {
                return false;
            }
            for _ in 0..15 {
                life.step(1.0, 1.0);
            }
            // And one of a minute in which less than half fails.
            for _ in 0..10 {
                life.step(0.4, 0.4);
            }
            for _ in 0..10 {
                life.step(natural, natural);
            }
            life.caught.is_some()
        });
        assert!(
            at_most(rolled_back) <= 0.06,
            "{rolled_back} of {LIVES} at {natural}"
        );
    }
}
