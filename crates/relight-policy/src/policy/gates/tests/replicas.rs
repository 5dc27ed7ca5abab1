//! Gates of several replicas that share what they know.

use super::*;

/// A gate that a replica closed, and one of another replica that took it over.
fn closed_at_both() -> (Calls, Calls) {
    let mut first = Calls::new(GateKind::Credential);
    let mut second = Calls::new(GateKind::Credential);
    second.now = first.now;
    first.close("t");
    second.now = first.now;
    let closing = first.gate.shared(first.now).expect("it is closed");
    second.gate.stay_back(Duration::from_secs(1));
    let change = second.gate.close_as(second.now, &closing);
    assert!(matches!(change, Some(GateChange::Closed { .. })));
    (first, second)
}

#[test]
fn a_gate_that_was_taken_over_probes_only_when_the_first_one_did_not() {
    let (mut first, mut second) = closed_at_both();
    assert!(first.pass("t").expect("a probe passes at once").probe);
    assert_eq!(second.pass("t"), Err(Duration::from_secs(1)));
    let closing = first.gate.shared(first.now).expect("it is closed");
    assert_eq!(second.gate.close_as(second.now, &closing), None, "no news");
    let wait = second.pass("t").expect_err("the first one probed");
    assert_eq!(
        wait,
        Duration::from_secs(2),
        "a second after its next probe"
    );
    second.now += wait;
    assert!(second.pass("t").expect("nobody else probed").probe);
}

#[test]
fn calls_of_the_last_of_many_replicas_wait_for_the_probe_of_any() {
    let mut first = Calls::new(GateKind::Rate);
    first.close("t");
    let mut last = Calls::new(GateKind::Rate);
    last.now = first.now;
    let closing = first.gate.shared(first.now).expect("it is closed");
    last.gate.close_as(last.now, &closing);
    last.gate.stay_back(Duration::from_mins(1));
    let tenant = TenantId::from("t");
    let planned = |calls: &Calls| calls.gate.peek_after(calls.now, &tenant, 0);
    assert_eq!(planned(&last), Err(RESULT), "the first one's probe is due");
    assert_eq!(last.gate.peek_ahead(last.now, &tenant), Err(RESULT));
    assert_eq!(last.pass("t"), Err(Duration::from_mins(1)), "its own");
    first.pass("t").expect("a probe");
    let closing = first.gate.shared(first.now).expect("it is closed");
    last.gate.close_as(last.now, &closing);
    assert_eq!(planned(&last), planned(&first));
}

#[test]
fn a_success_of_a_call_from_before_the_closing_elsewhere_does_not_open() {
    let mut first = Calls::new(GateKind::Credential);
    let mut second = Calls::new(GateKind::Credential);
    let earlier = second.pass("t").expect("it is open");
    first.close("t");
    let closing = first.gate.shared(first.now).expect("it is closed");
    second.gate.close_as(second.now, &closing);
    assert_eq!(second.answer(earlier), None);
    assert!(second.gate.closed_since().is_some());
}

#[test]
fn of_two_known_times_the_later_one_counts_in_whatever_order_they_come() {
    let (first, second) = closed_at_both();
    let known = first.gate.shared(first.now).expect("it is closed");
    for others in [[1_000, 9_000], [9_000, 1_000]] {
        let mut gate = Gate::new(GateKind::Credential, Arc::new(GatePolicy::default()));
        for probe_ms in others {
            let mut closing = known.clone();
            closing.tenants[0].probe_ms = probe_ms;
            gate.close_as(second.now, &closing);
        }
        let shared = gate.shared(second.now).expect("it is closed");
        assert_eq!(shared.tenants[0].probe_ms, 9_000);
    }
}

#[test]
fn refused_callers_of_a_closing_elsewhere_get_the_class_and_the_status_of_it() {
    let (_, second) = closed_at_both();
    let refused = second.gate.refusal(second.now, &"t".into());
    let refused = refused.expect("it is closed");
    assert_eq!(refused.class, FailureClass::RateLimited);
    assert!(refused.message.contains("this one was not sent"));
    assert!(refused.never_sent);
}

#[test]
fn a_closing_is_as_old_as_the_time_that_it_was_under_way() {
    let (first, _) = closed_at_both();
    let now = first.gate.shared(first.now).expect("it is closed");
    let later = first.gate.shared(first.now + Duration::from_secs(3));
    assert_eq!(later, Some(now.after(Duration::from_secs(3))));
}

#[test]
fn callers_parked_at_several_replicas_return_in_turn() {
    let mut first = Calls::new(GateKind::Rate);
    first.close("t");
    let closing = first.gate.shared(first.now).expect("it is closed");
    let now = first.now + Duration::from_secs(5);
    let mut waits = Vec::new();
    for rank in 0..4 {
        let mut gate = Gate::new(GateKind::Rate, Arc::new(GatePolicy::default()));
        gate.share_with(ReplicaPlace { rank, live: 4 });
        gate.close_as(first.now, &closing);
        assert!(gate.open_as(now).is_some());
        waits.push(gate.admit(now, &"t".into(), false).err());
    }
    assert_eq!(waits[0], None, "the first one has its turn at once");
    let later: Vec<Duration> = waits.into_iter().flatten().collect();
    assert_eq!(later.len(), 3);
    assert!(later.is_sorted_by(|one, other| one < other), "{later:?}");
}
