//! The gate of a refused credential: one probe a minute, and the first answer to it opens.

use proptest::{collection::vec, prelude::*};

use super::*;

#[test]
fn a_refused_credential_is_probed_once_a_minute_until_it_works() {
    for kind in [GateKind::Credential, GateKind::Configuration] {
        let (mut gate, now) = gate(kind);
        assert_eq!(gate.admit(now, false), Ok(GatePass::Open));
        gate.close(now, &failed(None, FailureClass::Authentication), TOOK, 0.0);
        assert_eq!(gate.class(), Some(FailureClass::Authentication));
        let probes: Vec<u64> = (0..600)
            .filter(|second| (0..100).any(|_| gate.admit(now + secs(*second), false).is_ok()))
            .collect();
        assert_eq!(
            probes,
            (1..10).map(|minute| minute * 60).collect::<Vec<_>>()
        );
        assert_eq!(
            gate.succeed(now + secs(541)),
            Some(GateChange::Opened {
                closed_for: secs(541)
            })
        );
        assert_eq!(gate.class(), None);
        assert!((0..100).all(|_| gate.admit(now + secs(541), false) == Ok(GatePass::Open)));
    }
}

#[test]
fn an_answer_to_a_call_from_before_the_refusal_does_not_open_the_credential_gate() {
    let (mut gate, now) = gate(GateKind::Credential);
    gate.close(now, &failed(None, FailureClass::QuotaExceeded), TOOK, 0.0);
    assert_eq!(gate.succeed(now + secs(1)), None);
    assert_eq!(gate.admit(now + secs(60), false), Ok(GatePass::Probe));
    gate.close(
        now + secs(61),
        &failed(None, FailureClass::QuotaExceeded),
        TOOK,
        0.0,
    );
    assert_eq!(
        gate.succeed(now + secs(62)),
        None,
        "the probe was refused too"
    );
    assert_eq!(gate.admit(now + secs(121), false), Ok(GatePass::Probe));
    assert_eq!(
        gate.succeed(now + secs(122)),
        Some(GateChange::Opened {
            closed_for: secs(122)
        })
    );
}

#[test]
fn of_a_hundred_callers_at_the_minute_one_is_the_probe() {
    let (mut gate, now) = gate(GateKind::Credential);
    gate.close(
        now,
        &failed(Some(secs(3600)), FailureClass::QuotaExceeded),
        TOOK,
        0.0,
    );
    let passes: Vec<_> = (0..100)
        .filter_map(|_| gate.admit(now + secs(60), false).ok())
        .collect();
    assert_eq!(passes, [GatePass::Probe]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_credential_is_never_probed_twice_within_a_minute(
        asks in vec((0..40_000_u64, any::<bool>(), 0.0..=1.0), 1..200),
    ) {
        let (mut gate, mut now) = gate(GateKind::Credential);
        gate.close(now, &failed(None, FailureClass::Authentication), TOOK, 0.0);
        let mut last = now;
        for (gap_ms, refused, rng) in asks {
            now += Duration::from_millis(gap_ms);
            if gate.admit(now, false).is_ok() {
                prop_assert!(now - last >= secs(60));
                last = now;
                if refused {
                    gate.close(now, &failed(None, FailureClass::Authentication), TOOK, rng);
                }
            }
        }
    }
}
