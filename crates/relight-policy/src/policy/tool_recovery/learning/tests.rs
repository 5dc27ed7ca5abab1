//! What is learnt of tools, for whom, and what undoes it.

use proptest::prelude::*;

use super::*;

const HOUR: Duration = Duration::from_hours(1);
const PAIR: (&str, &str) = ("get_activities", "get_activity");

fn at(hours: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + hours * 3_600).unwrap()
}

fn learning() -> ToolLearning {
    ToolLearning::new(24 * HOUR, 100)
}

fn learner(tenant: &str, operation: &str) -> Learner {
    Learner {
        tenant: tenant.into(),
        operation: operation.into(),
    }
}

fn executor() -> Learner {
    learner("a", "executor")
}

fn preferred(learning: &ToolLearning, learner: &Learner, hours: i64) -> Option<String> {
    learning
        .prefer(learner, PAIR.0, at(hours))
        .map(|it| it.tool)
}

#[test]
fn it_takes_two_cases_of_one_tenant_in_one_operation_and_lasts_one_half_life() {
    let mut learning = learning();
    learning.correct(&executor(), PAIR, "one", at(0));
    assert_eq!(preferred(&learning, &executor(), 0), None, "one case");
    learning.correct(&executor(), PAIR, "one", at(0));
    assert_eq!(preferred(&learning, &executor(), 0), None, "the same case");
    learning.correct(&learner("b", "executor"), PAIR, "two", at(0));
    assert_eq!(
        preferred(&learning, &executor(), 0),
        None,
        "the case of another tenant"
    );
    learning.correct(&executor(), PAIR, "two", at(0));
    assert_eq!(
        preferred(&learning, &executor(), 0).as_deref(),
        Some("get_activity")
    );
    assert_eq!(
        preferred(&learning, &executor(), 24).as_deref(),
        Some("get_activity")
    );
    assert_eq!(preferred(&learning, &executor(), 25), None, "it has faded");
    for other in [learner("b", "executor"), learner("a", "planner")] {
        assert_eq!(preferred(&learning, &other, 0), None, "{other:?}");
    }
}

#[test]
fn one_success_of_the_tool_that_was_named_undoes_it() {
    let mut learning = learning();
    for case in ["one", "two", "three"] {
        learning.correct(&executor(), PAIR, case, at(0));
    }
    learning.record(&learner("b", "executor"), PAIR.0, true, at(1));
    learning.record(&executor(), PAIR.1, true, at(1));
    learning.record(&executor(), PAIR.0, false, at(1));
    assert!(
        preferred(&learning, &executor(), 1).is_some(),
        "none of these is one"
    );
    learning.record(&executor(), PAIR.0, true, at(1));
    assert_eq!(preferred(&learning, &executor(), 1), None);
    for case in ["one", "two"] {
        learning.correct(&executor(), PAIR, case, at(2));
    }
    learning.refute(&executor(), PAIR.0, PAIR.1);
    assert_eq!(
        preferred(&learning, &executor(), 2),
        None,
        "so does a call that was in vain"
    );
}

#[test]
fn success_is_drawn_to_the_middle_where_little_is_known() {
    let mut learning = learning();
    assert_eq!(learning.success(&executor(), "t", at(0)), None);
    learning.record(&executor(), "t", true, at(0));
    let once = learning.success(&executor(), "t", at(0)).unwrap();
    for _ in 0..20 {
        learning.record(&executor(), "t", true, at(0));
    }
    let often = learning.success(&executor(), "t", at(0)).unwrap();
    let faded = learning.success(&executor(), "t", at(24 * 30)).unwrap();
    assert!(
        0.5 < once && once < often && often < 1.0 && faded < once,
        "{once} {often} {faded}"
    );
}

#[test]
fn what_was_learnt_survives_a_journal_is_listed_and_is_reset() {
    let mut learning = learning();
    let executor = executor();
    learning.correct(&executor, ("a", "b"), "one", at(0));
    learning.correct(&executor, ("c", "d"), "one", at(1));
    learning.record(&executor, "b", true, at(1));
    learning.record(&learner("b", "planner"), "b", false, at(1));
    let json = serde_json::to_string(&learning).unwrap();
    assert_eq!(
        serde_json::from_str::<ToolLearning>(&json).unwrap(),
        learning
    );
    assert_eq!(
        learning
            .confusions(at(1))
            .first()
            .map(|it| it.chosen.clone()),
        Some("c".to_owned())
    );
    assert_eq!(learning.records(at(1)).len(), 2);
    assert!(learning.confusions(at(24 * 365)).is_empty());
    let smaller = learning.clone().with_bounds(HOUR, 1, at(1));
    assert_eq!(
        (
            smaller.confusions(at(1)).len(),
            smaller.records(at(1)).len()
        ),
        (1, 1)
    );
    assert_eq!(learning.clone().reset(None, None, None), 4);
    assert_eq!(learning.clone().reset(Some(&"b".into()), None, None), 1);
    assert_eq!(
        learning.reset(None, Some(&executor.operation), Some("b")),
        2,
        "one confusion, one record"
    );
    assert_eq!(
        (
            learning.confusions(at(1)).len(),
            learning.records(at(1)).len()
        ),
        (1, 1)
    );
}

#[test]
fn a_tenant_that_fills_the_memory_makes_no_other_tenant_forget() {
    let mut learning = ToolLearning::new(24 * HOUR, 10);
    let other = learner("quiet", "executor");
    for case in ["one", "two"] {
        learning.correct(&other, PAIR, case, at(0));
    }
    for number in 0..100 {
        let loud = learner("loud", &format!("operation {number}"));
        learning.correct(&loud, PAIR, "one", at(1));
        learning.record(&loud, PAIR.0, false, at(1));
    }
    assert!(preferred(&learning, &other, 1).is_some());
}

proptest! {
    #[test]
    fn it_stays_within_its_bounds_and_its_weights_are_finite(
        calls in proptest::collection::vec((0_u8..40, 0_u8..40, any::<bool>(), 0_i64..10_000), 0..200)
    ) {
        let mut learning = ToolLearning::new(HOUR, 10);
        for (chosen, right, succeeded, hours) in calls {
            let chosen = chosen.to_string();
            let right = right.to_string();
            learning.correct(&executor(), (&chosen, &right), &hours.to_string(), at(hours));
            learning.record(&executor(), &chosen, succeeded, at(hours));
            prop_assert!(learning.confusions.len() <= 10 && learning.records.len() <= 10);
            prop_assert!(learning.confusions.iter().all(|it| it.cases.len() <= MAX_CASES));
            let preferred = learning.prefer(&executor(), &chosen, at(hours));
            prop_assert!(!succeeded || preferred.is_none(), "{preferred:?}");
        }
        let is_finite = learning.confusions(at(0)).iter().all(|it| it.weight.is_finite());
        prop_assert!(is_finite);
    }
}

#[test]
fn a_tool_that_did_not_find_or_not_understand_the_call_refused_it() {
    let refusals: Vec<_> = FailureClass::ALL
        .into_iter()
        .filter(|class| is_refusal(*class))
        .collect();
    assert_eq!(
        refusals,
        [FailureClass::InvalidRequest, FailureClass::NotFound]
    );
}
