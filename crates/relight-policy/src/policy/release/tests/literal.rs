//! The lanes of the literal mode, each at its exact threshold.

use super::*;

#[test]
fn literal_three_failures_in_a_row_roll_back_and_two_do_not() {
    let mut trial = Trial::literal();
    assert_eq!(trial.fails_times(2), None);
    assert_eq!(
        lane(trial.fails_times(1).as_ref()),
        Some((ReleaseLane::Immediate, false))
    );
    assert_eq!(
        (trial.state(), trial.monitor.candidate_share()),
        (ReleaseState::RolledBack, 0.0)
    );
}

#[test]
fn literal_three_failures_in_a_row_count_within_five_minutes_and_not_beyond() {
    for (between, expected) in [(149, Some((ReleaseLane::Immediate, false))), (151, None)] {
        let mut trial = Trial::literal();
        trial.succeeds(1);
        for _ in 0..2 {
            assert_eq!(trial.fails_times(1), None);
            trial.wait(Duration::from_secs(between - 1));
        }
        // Each outcome comes a second after the wait before it, so that three are twice `between`
        // apart.
        assert_eq!(
            lane(trial.fails_times(1).as_ref()),
            expected,
            "{between} s apart"
        );
    }
}

#[test]
fn literal_two_failures_with_one_signature_roll_back_and_one_does_not() {
    for signature in ["TypeError", "AttributeError"] {
        let mut trial = Trial::literal();
        assert_eq!(trial.fails(FailureClass::ToolFailed, signature), None);
        assert_eq!(
            lane(trial.fails(FailureClass::ToolFailed, signature).as_ref()),
            Some((ReleaseLane::Immediate, false))
        );
    }
    let mut trial = Trial::literal();
    trial.fails(FailureClass::ToolFailed, "TypeError");
    assert_eq!(
        trial.fails(FailureClass::ToolFailed, "AttributeError"),
        None,
        "two signatures are not one"
    );
}

#[test]
fn literal_five_of_five_roll_back_and_four_of_four_do_not() {
    let apart = Duration::from_mins(6);
    let mut trial = Trial::literal();
    for _ in 0..4 {
        assert_eq!(trial.wait(apart).fails_times(1), None);
    }
    assert_eq!(
        lane(trial.wait(apart).fails_times(1).as_ref()),
        Some((ReleaseLane::Fast, false))
    );
    let mut trial = Trial::literal();
    trial.succeeds(1);
    for _ in 0..5 {
        assert_eq!(
            trial.wait(apart).fails_times(1),
            None,
            "one of six succeeded"
        );
    }
}

#[test]
fn literal_fifteen_points_over_ten_executions_roll_back_and_less_of_either_does_not() {
    // The stable release succeeds in 95 %: 80 % is a drop of fifteen points.
    let failing = |executions: u32, failures: u32| {
        let mut trial = Trial::literal();
        trial.stable(95, 5);
        // Spread, so that no run of three comes up.
        let every = executions / failures;
        (1..=executions).find_map(|n| {
            let fails = n % every == 0 && n / every <= failures;
            if fails {
                trial.fails_times(1)
            } else {
                trial.succeeds(1)
            }
        })
    };
    assert_eq!(
        lane(failing(10, 2).as_ref()),
        Some((ReleaseLane::Standard, false)),
        "80 % of 10"
    );
    assert_eq!(lane(failing(10, 1).as_ref()), None, "90 % of 10");
    assert_eq!(lane(failing(9, 3).as_ref()), None, "67 % of 9 are too few");
    assert_eq!(
        lane(failing(14, 2).as_ref()),
        None,
        "86 % of 14 are a drop of nine points"
    );
}
