//! Which tools may stand in, in which order, and which automatically.

use std::time::Duration;

use serde_json::{Value, json};

use super::*;

fn spec(name: &str, properties: Value, required: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: format!("Works with {name}"),
        input_schema: Value::from_iter([
            ("type", "object".into()),
            ("properties", properties),
            ("required", required),
        ])
        .into(),
        output_schema: None,
        annotations: crate::domain::invocation::SideEffects::default(),
        sent: None,
    }
}

fn reading() -> Effects {
    Effects {
        read_only: true,
        destructive: false,
        open_world: false,
        repeatable: true,
        key_argument: None,
        reason: "it changes nothing",
    }
}

fn candidate(spec: &ToolSpec) -> AlternativeTool<'_> {
    AlternativeTool {
        target: spec.name.as_str().into(),
        spec,
        arguments: None,
        equivalence: None,
        same_capability: false,
        effects: reading(),
        healthy: true,
        tried: false,
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).unwrap()
}

struct Story {
    target: TargetId,
    list: ToolSpec,
    single: ToolSpec,
    arguments: Arguments,
    effects: Effects,
    learner: Learner,
    learning: ToolLearning,
}

impl Story {
    /// A call that names an activity, in another spelling than the tool for one takes.
    fn of_an_activity() -> Self {
        Self {
            arguments: super::super::arguments::read(r#"{"activityId": "12345"}"#).unwrap(),
            ..Self::new()
        }
    }

    fn new() -> Self {
        Self {
            target: "strava_get_my_activities_tool".into(),
            list: spec(
                "strava_get_my_activities_tool",
                json!({"limit": {"type": "integer"}}),
                json!([]),
            ),
            single: spec(
                "strava_get_activity_tool",
                json!({"activity_id": {"type": "integer"}}),
                json!(["activity_id"]),
            ),
            arguments: super::super::arguments::read(r#"{"id": "12345"}"#).unwrap(),
            effects: reading(),
            learner: Learner {
                tenant: "a".into(),
                operation: "executor".into(),
            },
            learning: ToolLearning::new(Duration::from_hours(24), 100),
        }
    }

    fn failed(&self) -> FailedTool<'_> {
        FailedTool {
            target: &self.target,
            name: &self.list.name,
            spec: Some(&self.list),
            effects: &self.effects,
            arguments: &self.arguments,
            learner: &self.learner,
        }
    }

    fn rank(&self, candidates: &[AlternativeTool<'_>]) -> Vec<RankedTool> {
        rank(self.failed(), candidates, Some((&self.learning, at(0))))
    }
}

#[test]
fn the_similar_tool_is_offered_with_adapted_arguments_but_not_called_automatically() {
    let story = Story::of_an_activity();
    let ranked = story.rank(&[candidate(&story.single)]);
    let [tool] = ranked.as_slice() else {
        panic!("{ranked:?}")
    };
    assert_eq!((tool.grounds.as_ref(), tool.needs.as_str()), (None, ""));
    let adapted = tool.adapted.as_ref().unwrap();
    assert_eq!(
        Value::Object(adapted.arguments.clone()),
        json!({"activity_id": 12345})
    );
    assert!(
        preferred(
            story.failed(),
            &[candidate(&story.single)],
            &story.learning,
            at(0)
        )
        .is_none()
    );
}

#[test]
fn what_was_learnt_is_called_at_once_where_it_is_declared_equal_and_its_arguments_allow_it() {
    let mut story = Story::of_an_activity();
    let chosen = story.list.name.clone();
    let right = story.single.name.clone();
    for case in ["one", "two"] {
        let learner = story.learner.clone();
        story
            .learning
            .correct(&learner, (&chosen, &right), case, at(0));
    }
    let at_once = |story: &Story, equivalence| {
        let candidate = AlternativeTool {
            equivalence,
            ..candidate(&story.single)
        };
        preferred(story.failed(), &[candidate], &story.learning, at(0)).map(|(tool, _)| tool.name)
    };
    let declared = Some(Equivalence::Group(0));
    assert_eq!(at_once(&story, declared), Some(right.clone()));
    assert_eq!(at_once(&story, None), None, "nobody declared it");
    assert_eq!(
        story.rank(&[candidate(&story.single)])[0].grounds,
        None,
        "it is offered, and not called"
    );
    story.arguments = super::super::arguments::read(r#"{"limit": 5}"#).unwrap();
    assert_eq!(
        at_once(&story, declared),
        None,
        "a call for a list names no activity"
    );
}

#[test]
fn the_stable_release_is_called_automatically_and_then_a_declared_group_in_its_order() {
    let story = Story::new();
    let same = |name| spec(name, json!({"id": {"type": "string"}}), json!(["id"]));
    let first = same("mirror_a");
    let second = same("mirror_b");
    let third = same("get_my_activities_again");
    let in_group = |spec, order| AlternativeTool {
        equivalence: Some(Equivalence::Group(order)),
        ..candidate(spec)
    };
    let stable = same("stable");
    let release = AlternativeTool {
        equivalence: Some(Equivalence::StableRelease),
        ..candidate(&stable)
    };
    let ranked = story.rank(&[
        candidate(&third),
        in_group(&second, 1),
        in_group(&first, 0),
        release,
    ]);
    let names: Vec<_> = ranked
        .iter()
        .map(|tool| (tool.name.as_str(), tool.grounds))
        .collect();
    assert_eq!(
        names,
        [
            ("stable", Some(Grounds::Release)),
            ("mirror_a", Some(Grounds::Group)),
            ("mirror_b", Some(Grounds::Group)),
            ("get_my_activities_again", None)
        ]
    );
}

#[test]
fn hard_conditions_sort_out_whatever_the_rank() {
    let story = Story::new();
    let good = candidate(&story.single);
    let writes = Effects {
        read_only: false,
        ..reading()
    };
    let unrelated = spec("send_mail", json!({}), json!([]));
    for excluded in [
        AlternativeTool {
            healthy: false,
            ..good.clone()
        },
        AlternativeTool {
            tried: true,
            ..good.clone()
        },
        AlternativeTool {
            effects: writes,
            ..good.clone()
        },
        candidate(&unrelated),
    ] {
        assert!(
            story.rank(std::slice::from_ref(&excluded)).is_empty(),
            "{excluded:?}"
        );
    }
    let capable = AlternativeTool {
        same_capability: true,
        ..candidate(&unrelated)
    };
    assert_eq!(story.rank(&[capable]).len(), 1, "its operator declared it");
}

#[test]
fn a_tool_that_needs_more_than_was_given_is_offered_last_with_what_it_needs() {
    let story = Story::of_an_activity();
    let more = spec(
        "get_activity_of",
        json!({"activity_id": {"type": "integer"}, "athlete": {"type": "string"}}),
        json!(["activity_id", "athlete"]),
    );
    let grouped = AlternativeTool {
        equivalence: Some(Equivalence::Group(0)),
        ..candidate(&more)
    };
    let ranked = story.rank(&[grouped, candidate(&story.single)]);
    assert_eq!(ranked[0].name, story.single.name);
    assert_eq!(
        (ranked[1].name.as_str(), &ranked[1].grounds),
        ("get_activity_of", &None)
    );
    assert!(
        ranked[1].needs.contains("`athlete` (string, required)"),
        "{}",
        ranked[1].needs
    );
}

#[test]
fn what_succeeded_before_comes_first_and_then_what_has_the_more_alike_name() {
    let mut story = Story::new();
    let same = |name| spec(name, json!({"id": {"type": "string"}}), json!(["id"]));
    let alike = same("strava_get_my_activities");
    let other = same("find_activity");
    let names = |story: &Story| -> Vec<String> {
        story
            .rank(&[candidate(&other), candidate(&alike)])
            .into_iter()
            .map(|tool| tool.name)
            .collect()
    };
    assert_eq!(names(&story), ["strava_get_my_activities", "find_activity"]);
    story
        .learning
        .record(&story.learner.clone(), "find_activity", true, at(0));
    assert_eq!(names(&story), ["find_activity", "strava_get_my_activities"]);
}

#[test]
fn an_argument_never_becomes_another_one_because_it_is_the_only_of_its_type() {
    let mut story = Story::new();
    story.arguments = super::super::arguments::read(r#"{"athlete_id": 7}"#).unwrap();
    let ranked = story.rank(&[candidate(&story.single)]);
    assert!(
        ranked[0].adapted.is_none() && !ranked[0].needs.is_empty(),
        "{ranked:?}"
    );
}
