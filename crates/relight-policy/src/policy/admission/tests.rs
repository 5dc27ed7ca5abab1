//! The admission rules, one by one.

use super::*;

fn policy(max_in_flight: u32) -> AdmissionPolicy {
    AdmissionPolicy { max_in_flight }
}

fn enter(admission: &mut Admission, tenant: &str, times: u32, now: Instant) -> u32 {
    let tenant = TenantId::from(tenant);
    (0..times)
        .map(|_| u32::from(admission.try_enter(&tenant, now).is_ok()))
        .sum()
}

fn leave(admission: &mut Admission, tenant: &str, times: u32) {
    for _ in 0..times {
        admission.leave(&TenantId::from(tenant));
    }
}

fn refused(admission: &mut Admission, tenant: &str, now: Instant) -> Option<ShedReason> {
    admission
        .try_enter(&TenantId::from(tenant), now)
        .err()
        .map(|shed| shed.reason)
}

#[test]
fn a_lone_tenant_may_use_everything_and_no_more() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(10));
    assert_eq!(enter(&mut admission, "a", 20, now), 10);
    assert_eq!(admission.in_flight(), 10);
    let shed = admission.try_enter(&TenantId::from("a"), now).unwrap_err();
    assert_eq!(
        shed,
        Shed {
            retry_in: Duration::from_secs(1),
            reason: ShedReason::Full
        }
    );
    leave(&mut admission, "a", 1);
    assert_eq!(enter(&mut admission, "a", 2, now), 1);
}

#[test]
fn when_room_is_scarce_the_tenant_above_its_share_is_refused_and_the_other_is_not() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(10));
    enter(&mut admission, "small", 1, now);
    assert_eq!(
        enter(&mut admission, "hog", 20, now),
        7,
        "up to eight tenths of the room"
    );
    assert_eq!(
        refused(&mut admission, "hog", now),
        Some(ShedReason::OverShare)
    );
    assert_eq!(enter(&mut admission, "small", 5, now), 2, "what is left");
    assert_eq!(
        refused(&mut admission, "small", now),
        Some(ShedReason::Full)
    );
}

#[test]
fn a_tenant_may_have_exactly_its_share_and_fairness_begins_at_its_threshold() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(10));
    enter(&mut admission, "b", 1, now);
    assert_eq!(
        enter(&mut admission, "a", 6, now),
        6,
        "seven of ten are not scarce"
    );
    assert_eq!(
        enter(&mut admission, "a", 1, now),
        1,
        "nor is the eighth, while seven are taken"
    );
    assert_eq!(
        refused(&mut admission, "a", now),
        Some(ShedReason::OverShare),
        "at eight of ten it is"
    );
    leave(&mut admission, "a", 3);
    enter(&mut admission, "b", 3, now);
    assert_eq!(enter(&mut admission, "a", 2, now), 1, "five is half of ten");
}

#[test]
fn a_tenant_that_was_refused_is_admitted_when_it_returns_after_the_stated_wait() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(10));
    enter(&mut admission, "hog", 10, now);
    let shed = admission
        .try_enter(&TenantId::from("late"), now)
        .unwrap_err();
    // The hog ends one and comes again at once: the room is kept for the one that waits.
    leave(&mut admission, "hog", 1);
    assert_eq!(
        refused(&mut admission, "hog", now),
        Some(ShedReason::OverShare)
    );
    assert_eq!(enter(&mut admission, "late", 1, now + shed.retry_in), 1);
}

#[test]
fn a_claim_ends_when_the_tenant_does_not_come_back() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(10));
    enter(&mut admission, "hog", 10, now);
    assert_eq!(refused(&mut admission, "late", now), Some(ShedReason::Full));
    leave(&mut admission, "hog", 1);
    assert_eq!(
        refused(&mut admission, "hog", now + Duration::from_secs(3)),
        Some(ShedReason::OverShare)
    );
    assert_eq!(
        enter(&mut admission, "hog", 1, now + Duration::from_millis(3001)),
        1
    );
}

#[test]
fn leaving_without_having_entered_changes_nothing() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(2));
    leave(&mut admission, "a", 3);
    assert_eq!(admission.in_flight(), 0);
    assert_eq!(enter(&mut admission, "a", 3, now), 2);
    leave(&mut admission, "b", 1);
    assert_eq!(admission.in_flight(), 2);
}

#[test]
fn tenants_that_are_gone_are_forgotten_and_those_at_work_are_not() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(5000));
    enter(&mut admission, "at work", 1, now);
    for number in 0..1500 {
        let tenant = number.to_string();
        enter(&mut admission, &tenant, 1, now);
        leave(&mut admission, &tenant, 1);
    }
    enter(&mut admission, "new", 1, now + Duration::from_secs(10));
    assert_eq!(admission.tenants.len(), 2);
    assert_eq!(admission.in_flight(), 2);
}

#[test]
fn a_reload_ends_nothing_that_is_running() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(10));
    enter(&mut admission, "a", 10, now);
    admission.reconfigure(policy(5));
    assert_eq!(
        (admission.in_flight(), refused(&mut admission, "a", now)),
        (10, Some(ShedReason::Full))
    );
    leave(&mut admission, "a", 6);
    assert_eq!(enter(&mut admission, "a", 5, now), 1);
}

#[test]
fn nonsense_is_named_by_its_field() {
    let policy = AdmissionPolicy { max_in_flight: 0 };
    let fields: Vec<_> = policy
        .validate()
        .into_iter()
        .map(|(field, _)| field)
        .collect();
    assert_eq!(fields, ["max_in_flight"]);
}

#[test]
fn the_reasons_have_the_names_that_metrics_have() {
    let reasons = [ShedReason::Full, ShedReason::OverShare];
    assert_eq!(reasons.map(ShedReason::as_str), ["full", "over_share"]);
}

#[test]
fn a_tenant_that_was_refused_has_nothing_to_leave() {
    let now = Instant::now();
    let mut admission = Admission::new(policy(1));
    enter(&mut admission, "a", 1, now);
    assert_eq!(refused(&mut admission, "b", now), Some(ShedReason::Full));
    leave(&mut admission, "b", 1);
    assert_eq!(admission.in_flight(), 1);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_in_flight_is_what_came_in_less_what_left_and_never_too_much(
            steps in prop::collection::vec((0_u8..3, any::<bool>(), 0_u64..500), 1..300),
        ) {
            let mut now = Instant::now();
            let mut admission = Admission::new(policy(8));
            let mut inside = [0_u32; 3];
            for (tenant, comes, millis) in steps {
                now += Duration::from_millis(millis);
                let name = tenant.to_string();
                if comes {
                    inside[usize::from(tenant)] += enter(&mut admission, &name, 1, now);
                } else if inside[usize::from(tenant)] > 0 {
                    leave(&mut admission, &name, 1);
                    inside[usize::from(tenant)] -= 1;
                }
                prop_assert_eq!(admission.in_flight(), inside.iter().sum::<u32>());
                prop_assert!(admission.in_flight() <= 8);
            }
        }

        #[test]
        fn a_tenant_below_its_share_is_refused_only_when_everything_is_taken(
            hog in 0_u32..30,
            small in 0_u32..4,
        ) {
            let now = Instant::now();
            let mut admission = Admission::new(policy(10));
            enter(&mut admission, "hog", hog, now);
            let had = enter(&mut admission, "small", small, now);
            let full = admission.in_flight() == 10;
            let refusal = refused(&mut admission, "small", now);
            prop_assert_eq!(refusal, (full && had < 5).then_some(ShedReason::Full));
        }
    }
}
