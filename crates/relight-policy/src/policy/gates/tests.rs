//! The guarantees of the gates.

mod credential;
mod model;
mod rate;
mod replicas;

use super::*;
use crate::domain::failure::{VerdictBasis, Wait};

/// How long a refusal takes to come.
const TOOK: Duration = Duration::from_millis(20);

/// A gate, and the time at it.
struct Calls {
    gate: Gate,
    start: Instant,
    now: Instant,
}

impl Calls {
    fn new(kind: GateKind) -> Self {
        let now = Instant::now();
        Self {
            gate: Gate::new(kind, Arc::new(GatePolicy::default())),
            start: now,
            now,
        }
    }

    fn since_start(&self) -> Duration {
        self.now - self.start
    }

    fn pass(&mut self, tenant: &str) -> Result<GatePass, Duration> {
        self.gate.admit(self.now, &tenant.into(), false)
    }

    fn answer(&mut self, pass: GatePass) -> Option<GateChange> {
        self.gate.succeeded(self.now, pass.call)
    }

    fn refuse(&mut self, pass: GatePass) -> Option<GateChange> {
        self.refuse_for(pass, None)
    }

    fn refuse_for(&mut self, pass: GatePass, wait: Option<Duration>) -> Option<GateChange> {
        let failure = failed(wait, FailureClass::RateLimited);
        self.gate.refused(self.now, pass.call, &failure)
    }

    /// Has calls of a tenant refused until it is closed.
    fn close(&mut self, tenant: &str) -> GateChange {
        loop {
            let pass = self.pass(tenant).expect("it is open");
            self.now += TOOK;
            if let Some(change) = self.refuse(pass) {
                return change;
            }
        }
    }
}

/// Returns a failure that states this wait.
fn failed(wait: Option<Duration>, class: FailureClass) -> Failure {
    let failure = Failure::local(class, "refused");
    Failure {
        retry_after: wait.map(|duration| Wait {
            duration,
            source: WaitSource::RetryAfter,
        }),
        ..failure
    }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Headers of a limit with nothing left.
fn nothing_left(reset: &str) -> Vec<(String, String)> {
    [
        ("x-ratelimit-remaining-requests", "0"),
        ("x-ratelimit-reset-requests", reset),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

#[test]
fn a_limit_with_nothing_left_closes_the_rate_gate_before_the_wall() {
    let mut it = Calls::new(GateKind::Rate);
    let tenant = TenantId::from("a");
    let headers = nothing_left("30s");
    let change = it.gate.observe_limits(it.now, &headers, &tenant);
    assert_eq!(
        change,
        Some(GateChange::Closed {
            reopens_in: secs(30)
        })
    );
    assert_eq!(
        it.gate.observe_limits(it.now, &headers, &tenant),
        None,
        "it is said once"
    );
    let probe = it.pass("a").unwrap();
    it.refuse(probe);
    assert_eq!(it.pass("a"), Err(secs(15)), "half-way");
    assert_eq!(it.gate.reopens_in(it.now), Some(secs(30)));
    let mut credential = Calls::new(GateKind::Credential);
    assert_eq!(
        credential.gate.observe_limits(it.now, &headers, &tenant),
        None
    );
    let blind = Arc::new(GatePolicy { pace: false });
    let mut blind = Gate::new(GateKind::Rate, blind);
    assert_eq!(blind.observe_limits(it.now, &headers, &tenant), None);
}

#[test]
fn headers_that_an_answer_refutes_are_not_believed_for_a_while() {
    let mut it = Calls::new(GateKind::Rate);
    let tenant = TenantId::from("a");
    it.gate
        .observe_limits(it.now, &nothing_left("24h0m0s"), &tenant);
    let probe = it.pass("a").unwrap();
    assert!(matches!(it.answer(probe), Some(GateChange::Opened { .. })));
    assert_eq!(
        it.gate.observe_limits(it.now, &nothing_left("3s"), &tenant),
        None
    );
    it.now += secs(600);
    assert!(
        it.gate
            .observe_limits(it.now, &nothing_left("3s"), &tenant)
            .is_some()
    );
}

#[test]
fn an_end_that_refusals_agree_on_is_told_and_probed_at() {
    let mut it = Calls::new(GateKind::Rate);
    let end = it.now + secs(20);
    for _ in 0..4 {
        let Ok(pass) = it.pass("a") else { break };
        it.now += secs(1);
        it.refuse_for(pass, Some(end - it.now));
    }
    assert_eq!(it.gate.reopens_in(it.now), Some(end - it.now));
    let mut sent = 0;
    while it.now < end {
        it.now += Duration::from_millis(10);
        if let Ok(pass) = it.pass("a") {
            sent += 1;
            it.refuse_for(pass, Some(end - it.now).filter(|wait| !wait.is_zero()));
        }
    }
    assert!(sent <= 3, "{sent} before the end");
    it.now += secs(1);
    assert!(it.pass("a").is_ok());
}

#[test]
fn a_probe_that_is_silent_for_longer_than_refusals_take_opens_it() {
    for kind in GateKind::ALL {
        let mut it = Calls::new(kind);
        it.close("a");
        let probe = it.pass("a").unwrap();
        assert!(probe.probe);
        it.now += TOOK;
        assert!(it.pass("a").is_err(), "a refusal may still come");
        it.now += TOOK * 2;
        assert!(it.pass("a").is_ok_and(|pass| !pass.probe), "{kind:?}");
        assert!(matches!(it.gate.drain(), Some(GateChange::Opened { .. })));
        assert_eq!(it.refuse(probe), None, "it is late, and shows nothing");
    }
}

#[test]
fn an_operator_opens_it_and_what_the_old_key_met_changes_nothing() {
    for kind in GateKind::ALL {
        let mut it = Calls::new(kind);
        it.close("a");
        let before = it.gate.epoch();
        assert!(it.gate.open(it.now).is_some());
        assert!(it.gate.epoch() > before && it.gate.closed_since().is_none());
        assert!((0..50).all(|_| it.pass("a").is_ok()));
        assert_eq!(it.gate.open(it.now), None, "it is said once");
    }
}

#[test]
fn a_queued_caller_gets_the_time_at_which_a_call_passes() {
    let mut it = Calls::new(GateKind::Rate);
    let tenant = TenantId::from("a");
    assert_eq!(it.gate.peek_after(it.now, &tenant, 1000), Ok(()));
    it.close("a");
    assert_eq!(
        it.gate.peek_after(it.now, &tenant, 0),
        Ok(()),
        "a probe is due"
    );
    let probe = it.pass("a").unwrap();
    assert_eq!(it.gate.peek_after(it.now, &tenant, 0), Err(secs(1)));
    it.answer(probe);
    let next = it.gate.peek_after(it.now, &tenant, 1).unwrap_err();
    assert!(it.gate.peek_after(it.now, &tenant, 10).unwrap_err() > next);
    it.now += secs(100);
    assert_eq!(
        it.gate.peek_after(it.now, &tenant, 1000),
        Ok(()),
        "nobody came for long"
    );
}

#[test]
fn words_close_a_gate_for_others_only_under_a_status_that_refuses_a_key_or_a_limit() {
    use {FailureClass as C, GateKind as G, VerdictBasis as E};
    for class in [C::RateLimited, C::QuotaExceeded, C::Authentication] {
        for (evidence, status, closes) in [
            (E::Words, Some(400), false),
            (E::Words, Some(422), false),
            (E::Words, Some(500), false),
            (E::Words, Some(200), false),
            (E::Words, None, false),
            (E::Words, Some(401), true),
            (E::Words, Some(402), true),
            (E::Words, Some(403), true),
            (E::Words, Some(429), true),
            (E::Code, Some(400), true),
            (E::Status, Some(429), true),
            (E::Own, None, true),
        ] {
            let failure = Failure {
                evidence,
                status,
                ..failed(None, class)
            };
            let gate = closed_by(&failure, false, false);
            let expected = class.row().gate.filter(|_| closes);
            assert_eq!(gate, expected, "{class}, {evidence:?}, {status:?}");
            assert!(gate.is_none_or(|gate| gate != G::Configuration));
        }
    }
}

#[test]
fn a_failure_closes_the_gate_of_its_class_unless_it_shows_nothing_about_that() {
    use {FailureClass as C, GateKind as G};
    for class in C::ALL {
        let failure = Failure {
            message: "no such model".to_owned(),
            ..failed(None, class)
        };
        assert_eq!(
            closed_by(&failure, false, false),
            class.row().gate,
            "{class}"
        );
    }
    let with_status = Failure {
        status: Some(401),
        ..failed(None, C::Authentication)
    };
    let worded = |class, message: &str| Failure {
        message: message.to_owned(),
        ..failed(None, class)
    };
    for (failure, by_tool, uniform_waits, expected) in [
        (failed(None, C::RateLimited), true, false, Some(G::Rate)),
        (failed(None, C::RateLimited), false, true, None),
        (
            failed(Some(secs(1)), C::RateLimited),
            false,
            true,
            Some(G::Rate),
        ),
        (
            failed(None, C::Authentication),
            false,
            true,
            Some(G::Credential),
        ),
        (failed(None, C::Authentication), true, false, None),
        (with_status, true, false, Some(G::Credential)),
        (
            worded(C::NotFound, "The model `m-1` does not exist"),
            false,
            true,
            Some(G::Configuration),
        ),
        (
            worded(C::NotFound, "Inference profile not found"),
            false,
            true,
            Some(G::Configuration),
        ),
        (
            worded(C::NotFound, "The model `m-1` does not exist"),
            true,
            false,
            None,
        ),
        (
            worded(C::NotFound, "File 'file-abc' not found"),
            false,
            false,
            None,
        ),
        (
            worded(C::NotFound, "No such file: model.bin"),
            false,
            false,
            None,
        ),
        (
            worded(
                C::NotFound,
                "CachedContent not found (or permission denied)",
            ),
            false,
            false,
            None,
        ),
        (
            worded(C::QuotaExceeded, "Your credit balance is used up"),
            false,
            false,
            Some(G::Credential),
        ),
        (
            worded(
                C::QuotaExceeded,
                "This request requires more credits, or fewer max_tokens",
            ),
            false,
            false,
            None,
        ),
    ] {
        assert_eq!(
            closed_by(&failure, by_tool, uniform_waits),
            expected,
            "{failure:?}, {by_tool}, {uniform_waits}"
        );
    }
}
