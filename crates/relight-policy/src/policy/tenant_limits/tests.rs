//! Tests of the limits of a tenant, in virtual time.

#![expect(
    clippy::cast_precision_loss,
    reason = "all numbers here are small enough"
)]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::policy::rng::SeededRng;

const MINUTE: Duration = Duration::from_mins(1);

fn acme() -> TenantId {
    TenantId::from("acme")
}

fn meters(limits: TenantLimits) -> TenantMeters {
    TenantMeters::new([(acme(), limits)].into())
}

fn tokens(input: u64) -> ExpectedTokens {
    ExpectedTokens {
        input,
        most_output: None,
    }
}

#[test]
fn a_limit_that_is_reached_refuses_until_the_time_that_it_names() {
    let mut meters = meters(TenantLimits {
        requests_per_minute: Some(3),
        ..TenantLimits::default()
    });
    let start = Instant::now();
    for second in 0..3 {
        let now = start + Duration::from_secs(second);
        assert!(meters.enter(&acme(), tokens(9), now).unwrap().is_some());
    }
    let now = start + Duration::from_secs(4);
    let over = meters.enter(&acme(), tokens(9), now).unwrap_err();
    assert_eq!((over.kind, over.max), (LimitKind::RequestsPerMinute, 3));
    let early = now + over.retry_in.saturating_sub(Duration::from_millis(1));
    assert!(meters.enter(&acme(), tokens(9), early).is_err());
    assert!(
        meters
            .enter(&acme(), tokens(9), now + over.retry_in)
            .is_ok()
    );
    assert_eq!(
        meters.refusals(),
        [(acme(), LimitKind::RequestsPerMinute, 2)]
    );
}

#[test]
fn places_in_flight_are_free_again_when_calls_end() {
    let mut meters = meters(TenantLimits {
        in_flight: Some(1),
        ..TenantLimits::default()
    });
    let now = Instant::now();
    let taken = meters.enter(&acme(), tokens(1), now).unwrap().unwrap();
    let over = meters.enter(&acme(), tokens(1), now).unwrap_err();
    assert_eq!(over.kind, LimitKind::InFlight);
    meters.settle(&acme(), taken, None, now);
    assert!(meters.enter(&acme(), tokens(1), now).is_ok());
}

#[test]
fn a_call_larger_than_a_minute_is_let_in_and_paid_back_before_the_next() {
    let limit = 100;
    let mut meters = meters(TenantLimits {
        input_tokens_per_minute: Some(limit),
        ..TenantLimits::default()
    });
    let now = Instant::now();
    let taken = meters.enter(&acme(), tokens(350), now).unwrap().unwrap();
    let used = TokenAmount {
        input: 950,
        output: 1,
    };
    meters.settle(&acme(), taken, Some(used), now);
    let over = meters.enter(&acme(), tokens(1), now).unwrap_err();
    // Nine and a half minutes' worth.
    assert!(
        over.retry_in >= 9 * MINUTE && over.retry_in <= 10 * MINUTE,
        "{over:?}"
    );
    let full_in = meters.usage(&acme(), now)[0].full_in;
    assert!(full_in >= over.retry_in && full_in <= over.retry_in + MINUTE + MINUTE / 60);
    let before = now + over.retry_in - Duration::from_millis(1);
    assert!(meters.enter(&acme(), tokens(1), before).is_err());
    assert!(
        meters
            .enter(&acme(), tokens(1), now + over.retry_in)
            .is_ok()
    );
}

#[test]
fn a_tenant_without_an_entry_has_the_limits_of_every_other_for_itself() {
    let limits = TenantLimits {
        requests_per_minute: Some(1),
        ..TenantLimits::default()
    };
    let mut meters = TenantMeters::new([(TenantId::from(EVERY_OTHER), limits)].into());
    let now = Instant::now();
    for tenant in ["a", "b"].map(TenantId::from) {
        assert!(meters.enter(&tenant, tokens(1), now).is_ok());
        assert!(meters.enter(&tenant, tokens(1), now).is_err());
    }
    let every_other = TenantId::from(EVERY_OTHER);
    assert_eq!(
        meters.refusals(),
        [(every_other, LimitKind::RequestsPerMinute, 2)]
    );
}

#[test]
fn tenants_that_come_once_are_not_kept_for_ever() {
    let limits = TenantLimits {
        requests_per_minute: Some(1),
        ..TenantLimits::default()
    };
    let mut meters = TenantMeters::new([(TenantId::from(EVERY_OTHER), limits)].into());
    let start = Instant::now();
    for number in 0..10 * SWEEP_AT {
        let now = start + Duration::from_secs(number as u64);
        let tenant = TenantId::from(number.to_string());
        let taken = meters.enter(&tenant, tokens(1), now).unwrap().unwrap();
        meters.settle(&tenant, taken, None, now);
    }
    assert!(meters.meters.len() <= SWEEP_AT);
}

/// A tenant's calls that run: when each ends, what it took and what it used.
type Running = VecDeque<(Instant, TokenAmount, TokenAmount)>;

/// Calls of a tenant that always has a call waiting and comes back when it is told to.
struct Got {
    begun: Vec<Instant>,
    used: TokenAmount,
}

/// A number from 1 to about twice `mean`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers"
)]
fn around(mean: u64, rng: &mut SeededRng) -> u64 {
    1 + (rng.unit() * 2.0 * mean as f64) as u64
}

/// Asks for `minutes` for as much as it gets, each call of these mean sizes and of up to a minute;
/// what is expected is wrong by up to `error` times.
fn insist(
    meters: &mut TenantMeters,
    tenant: &TenantId,
    (mean, error): (TokenAmount, f64),
    minutes: u32,
    rng: &mut SeededRng,
) -> Got {
    let start = Instant::now();
    let end = start + minutes * MINUTE;
    let mut now = start;
    let mut running = Running::new();
    let mut got = Got {
        begun: Vec::new(),
        used: TokenAmount::default(),
    };
    while now < end {
        while let Some(&(ended, taken, used)) = running.front()
            && ended <= now
        {
            running.pop_front();
            meters.settle(tenant, taken, Some(used), ended);
        }
        let used = TokenAmount {
            input: around(mean.input, rng),
            output: around(mean.output, rng),
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "small numbers"
        )]
        let expected = (used.input as f64 * error.powf(2.0 * rng.unit() - 1.0)) as u64;
        let expected = ExpectedTokens {
            input: expected,
            most_output: Some(2 * mean.output + 1),
        };
        match meters.enter(tenant, expected, now) {
            Ok(taken) => {
                got.begun.push(now);
                got.used.input += used.input;
                got.used.output += used.output;
                // They end in the order in which they began.
                let last = running.back().map_or(now, |(ended, ..)| *ended);
                let ended = last.max(now + MINUTE.mul_f64(rng.unit()));
                running.push_back((ended, taken.unwrap(), used));
            }
            // It comes back when it is told to, or when a call of its own ends.
            Err(over) => {
                assert!(over.retry_in > Duration::ZERO);
                let next = running.front().map_or(end, |(ended, ..)| *ended);
                now = (now + over.retry_in).min(next);
            }
        }
    }
    got
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_minute_has_more_calls_than_the_limit_and_who_insists_gets_98_percent(
        limit in 1_u64..600, gaps in 0.0..4.0_f64, seed in any::<u64>(),
    ) {
        let mut meters = meters(TenantLimits {
            requests_per_minute: Some(limit),
            ..TenantLimits::default()
        });
        let mut rng = SeededRng::new(seed, &"i".into(), 1);
        let start = Instant::now();
        let minutes = 60;
        let mut now = start;
        let mut begun = VecDeque::new();
        let mut offered = 0;
        let mut let_in = 0;
        // Arrivals between four times as rare as the limit and as dense as it lets in.
        while now < start + minutes * MINUTE {
            offered += 1;
            match meters.enter(&acme(), tokens(1), now) {
                Ok(_) => {
                    begun.push_back(now);
                    let_in += 1;
                    let gap = MINUTE.div_f64(limit as f64).mul_f64(gaps * rng.unit());
                    now += gap;
                }
                Err(over) => now += over.retry_in,
            }
            while begun.front().is_some_and(|first| now >= *first + MINUTE) {
                begun.pop_front();
            }
            prop_assert!(begun.len() as u64 <= limit, "{} in a minute", begun.len());
        }
        let ideal = limit * u64::from(minutes);
        let insists = gaps <= 1.0;
        prop_assert!(
            !insists || f64::from(let_in) >= 0.98 * ideal as f64 - limit as f64,
            "{let_in} of {ideal}, {offered} offered"
        );
    }

    #[test]
    fn tokens_hold_to_2_percent_over_time_whatever_was_expected(
        limit in 10_000_u64..1_000_000, parts in 5_u64..40, error in 1.0..4.0_f64,
        seed in any::<u64>(),
    ) {
        let mean = TokenAmount { input: limit / parts, output: limit / parts };
        let mut rng = SeededRng::new(seed, &"i".into(), 1);
        for output in [false, true] {
            let mut meters = meters(TenantLimits {
                requests_per_minute: Some(1000),
                input_tokens_per_minute: (!output).then_some(limit),
                output_tokens_per_minute: output.then_some(limit),
                ..TenantLimits::default()
            });
            let minutes = 120;
            let got = insist(&mut meters, &acme(), (mean, error), minutes, &mut rng);
            let used = if output { got.used.output } else { got.used.input };
            let ratio = used as f64 / (limit * u64::from(minutes)) as f64;
            prop_assert!((0.98..=1.02).contains(&ratio), "{ratio} of {limit}, {} calls", got.begun.len());
        }
    }

    #[test]
    fn a_tenant_gets_the_same_whatever_others_do(
        limit in 1_u64..50, others in 0_usize..20, seed in any::<u64>(),
    ) {
        let limits = TenantLimits {
            requests_per_minute: Some(limit),
            input_tokens_per_minute: Some(limit * 100),
            in_flight: Some(limit),
            ..TenantLimits::default()
        };
        let mean = TokenAmount { input: 100, output: 10 };
        let mut own = meters(limits);
        let mut shared = TenantMeters::new([(TenantId::from(EVERY_OTHER), limits)].into());
        for other in 0..others {
            let mut rng = SeededRng::new(seed, &"o".into(), 1);
            let tenant = TenantId::from(other.to_string());
            insist(&mut shared, &tenant, (mean, 2.0), 5, &mut rng);
        }
        let alone = insist(&mut own, &acme(), (mean, 2.0), 5, &mut SeededRng::new(seed, &"i".into(), 1));
        let beside = insist(&mut shared, &acme(), (mean, 2.0), 5, &mut SeededRng::new(seed, &"i".into(), 1));
        prop_assert_eq!(alone.begun.len(), beside.begun.len());
        prop_assert_eq!(alone.used, beside.used);
    }

    #[test]
    fn a_share_of_a_limit_is_that_part_of_it(limit in 100_u64..10_000, replicas in 1_u32..10) {
        let mut meters = meters(TenantLimits {
            requests_per_minute: Some(limit),
            ..TenantLimits::default()
        });
        meters.set_share(1.0 / f64::from(replicas));
        let now = Instant::now();
        let let_in = (0..=limit).filter(|_| meters.enter(&acme(), tokens(1), now).is_ok()).count();
        let ideal = limit as f64 / f64::from(replicas);
        prop_assert!(let_in as f64 <= ideal && let_in as f64 > ideal - 1.5, "{let_in} of {ideal}");
    }
}
