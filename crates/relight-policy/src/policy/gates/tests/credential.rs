//! The gate of a refused credential: what closes it, how it is probed, what opens it.

use proptest::{collection::vec, prelude::*};

use super::*;

#[test]
fn one_refused_call_among_others_that_are_answered_closes_nothing() {
    for kind in GateKind::ALL {
        let mut it = Calls::new(kind);
        for number in 0..750 {
            let pass = it.pass("a").expect("it is open");
            if number == 400 {
                assert_eq!(it.refuse(pass), None);
            } else {
                it.answer(pass);
            }
        }
    }
}

#[test]
fn a_key_that_never_worked_costs_a_handful_of_calls_and_is_used_soon_when_it_does() {
    for works_at in [2, 6, 20, 60] {
        let mut it = Calls::new(GateKind::Credential);
        let mut sent = 0;
        let mut used = None;
        for _ in 0..works_at * 100 + 6000 {
            it.now += Duration::from_millis(10);
            let Ok(pass) = it.pass("a") else { continue };
            if it.since_start() >= secs(works_at) {
                it.answer(pass);
                used = used.or(Some(it.since_start()));
            } else {
                sent += 1;
                it.refuse(pass);
            }
        }
        assert!(sent <= 16, "{sent} calls within {works_at} s");
        let late = used.expect("it is found") - secs(works_at);
        assert!(
            late <= secs(works_at).mul_f64(0.5).max(secs(1)),
            "{late:?} after {works_at} s"
        );
    }
}

#[test]
fn a_key_that_is_valid_after_six_seconds_is_used_within_two_of_that() {
    for gap_ms in [10, 40, 100, 300] {
        let mut it = Calls::new(GateKind::Credential);
        while it.since_start() < secs(60) {
            it.now += Duration::from_millis(gap_ms);
            let Ok(pass) = it.pass("a") else { continue };
            if it.since_start() >= secs(6) {
                break;
            }
            it.refuse(pass);
        }
        assert!(it.since_start() <= secs(8), "{:?}", it.since_start());
    }
}

#[test]
fn the_first_answered_probe_opens_it_and_one_from_before_does_not() {
    let mut it = Calls::new(GateKind::Credential);
    let early = it.pass("a").unwrap();
    it.close("a");
    assert_eq!(it.answer(early), None);
    let probe = it.pass("a").unwrap();
    assert!(probe.probe);
    assert!(it.pass("a").is_err(), "one at a time");
    assert!(matches!(it.answer(probe), Some(GateChange::Opened { .. })));
    assert!((0..100).all(|_| it.pass("a").is_ok_and(|pass| !pass.probe)));
}

#[test]
fn a_lost_probe_is_followed_by_the_next_one() {
    let mut it = Calls::new(GateKind::Credential);
    it.close("a");
    let lost = it.pass("a").unwrap();
    it.gate.ended(lost.call);
    it.now += secs(1);
    assert!(it.pass("a").unwrap().probe);
}

#[test]
fn one_tenant_closes_it_for_itself_and_three_for_all() {
    for kind in GateKind::ALL {
        let mut it = Calls::new(kind);
        it.close("a");
        it.pass("a").expect("a probe");
        assert!(it.pass("a").is_err());
        assert!((0..50).all(|_| it.pass("b").is_ok_and(|pass| !pass.probe)));
        for tenant in ["b", "c"] {
            let pass = it.pass(tenant).unwrap();
            it.refuse(pass);
            let probe = it.pass(tenant).unwrap();
            assert!(probe.probe, "its own");
            it.refuse(probe);
        }
        it.now += Duration::from_millis(500);
        assert!(it.pass("d").is_err());
    }
}

#[test]
fn a_tenant_that_is_answered_opens_it_for_the_one_that_closed_it() {
    let mut it = Calls::new(GateKind::Credential);
    it.close("a");
    it.pass("a").unwrap();
    let pass = it.pass("b").unwrap();
    assert!(matches!(it.answer(pass), Some(GateChange::Opened { .. })));
    assert!(it.pass("a").is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_one_tenant_does_another_is_never_kept_out(
        steps in vec((0..3_000_u64, 0..4_u8), 1..200),
    ) {
        for kind in GateKind::ALL {
            let mut it = Calls::new(kind);
            let mut out = Vec::new();
            for (gap_ms, what) in &steps {
                it.now += Duration::from_millis(*gap_ms);
                match what {
                    0 => out.extend(it.pass("hostile")),
                    1 => if let Some(pass) = out.pop() { it.answer(pass); },
                    _ => {
                        out.extend(it.pass("hostile"));
                        if let Some(pass) = out.pop() { it.refuse(pass); }
                    }
                }
                prop_assert!(it.gate.peek(it.now, &"honest".into()).is_ok());
                prop_assert!(!it.gate.is_paced(it.now, &"honest".into()));
            }
        }
    }
}

#[test]
fn a_refused_key_is_in_doubt_from_the_first_refusal_until_the_next_answer() {
    let mut it = Calls::new(GateKind::Credential);
    let early = it.pass("a").unwrap();
    let late = it.pass("a").unwrap();
    assert_eq!(it.gate.in_doubt(), None);
    let at = it.now;
    it.refuse(late);
    it.now += secs(1);
    it.answer(early);
    let next = it.pass("b").unwrap();
    it.refuse(next);
    assert_eq!(it.gate.in_doubt(), Some((FailureClass::RateLimited, at)));
    let answered = it.pass("b").unwrap();
    it.answer(answered);
    assert_eq!(it.gate.in_doubt(), None);
}
