//! A tool that failed, with everything around it, for the tests of the ladder.

use serde_json::{Value, json};

use super::super::{
    alternatives::Equivalence,
    chunk::{ChunkBy, ChunkRule},
    *,
};
use crate::domain::{failure::FailureClass, invocation::SideEffects};

pub(super) struct World {
    pub(super) arguments: Arguments,
    pub(super) effects: Effects,
    pub(super) old: Option<ToolSpec>,
    pub(super) current: Option<ToolSpec>,
    pub(super) is_fresh: bool,
    pub(super) tried: ToolTrials,
    pub(super) policy: ToolRecoveryPolicy,
    pub(super) rules: Vec<ChunkRule>,
    pub(super) attempts_left: u32,
    pub(super) time_left: Option<Duration>,
    pub(super) others: Vec<(ToolSpec, Option<Equivalence>)>,
    pub(super) learning: ToolLearning,
    pub(super) failing: bool,
    pub(super) goal: &'static str,
}

pub(super) fn tool(name: &str, properties: Value, required: Value) -> ToolSpec {
    ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        input_schema: Value::from_iter([
            ("type", "object".into()),
            ("properties", properties),
            ("required", required),
        ])
        .into(),
        output_schema: None,
        annotations: SideEffects::default(),
        sent: None,
    }
}

/// Returns a failure that the tool reported.
pub(super) fn failed(class: FailureClass) -> Failure {
    Failure {
        never_sent: false,
        retryable: false,
        ..Failure::local(class, class.phrase())
    }
}

pub(super) fn learner() -> Learner {
    Learner {
        tenant: "a".into(),
        operation: "executor".into(),
    }
}

pub(super) fn now() -> Timestamp {
    Timestamp::from_second(1_700_000_000).unwrap()
}

impl World {
    /// A tool that only reads, called for half a year, with its list known and fresh.
    pub(super) fn reading() -> Self {
        let spec = tool(
            "get_activities",
            json!({"after": {"type": "string"}, "before": {"type": "string"}, "limit": {"type": "integer"}}),
            json!([]),
        );
        Self {
            arguments: arguments::read(r#"{"after": "2024-01-01", "before": "2024-06-30"}"#)
                .unwrap(),
            effects: Self::reading_effects(),
            old: Some(spec.clone()),
            current: Some(spec),
            is_fresh: true,
            tried: ToolTrials {
                words: vec!["`get_activities` was called".to_owned()],
                ..ToolTrials::default()
            },
            policy: ToolRecoveryPolicy::default(),
            rules: Vec::new(),
            attempts_left: 5,
            time_left: Some(Duration::from_mins(1)),
            others: Vec::new(),
            learning: ToolLearning::new(Duration::from_hours(24), 100),
            failing: false,
            goal: "",
        }
    }

    pub(super) fn reading_effects() -> Effects {
        Effects {
            read_only: true,
            destructive: false,
            open_world: true,
            repeatable: true,
            key_argument: None,
            reason: "it changes nothing",
        }
    }

    pub(super) fn writing_effects() -> Effects {
        let reason = "it is not known whether repeating it has a further effect";
        Effects {
            read_only: false,
            destructive: true,
            repeatable: false,
            reason,
            ..Self::reading_effects()
        }
    }

    pub(super) fn split_by_dates(&mut self) {
        let from = "after".to_owned();
        let to = "before".to_owned();
        self.rules.push(ChunkRule::new(ChunkBy::Dates {
            from,
            to,
            end_included: None,
        }));
    }

    pub(super) fn split_by_pages(&mut self) {
        self.rules.push(ChunkRule::new(ChunkBy::Pages {
            limit: "limit".to_owned(),
            offset: Some("offset".to_owned()),
            page: None,
            first_page: 1,
        }));
    }

    /// Another tool that takes the same arguments.
    pub(super) fn alternative(&mut self, name: &str, group_order: Option<usize>) {
        let taken = json!({"after": {}, "before": {}, "limit": {}, "activity_id": {}});
        self.others.push((
            tool(name, taken, json!([])),
            group_order.map(Equivalence::Group),
        ));
    }

    pub(super) fn decide(&self, failure: &Failure) -> ToolStep {
        let candidates: Vec<AlternativeTool<'_>> = self
            .others
            .iter()
            .map(|(spec, equivalence)| AlternativeTool {
                target: spec.name.as_str().into(),
                spec,
                arguments: None,
                equivalence: *equivalence,
                same_capability: false,
                effects: self.effects.clone(),
                healthy: true,
                tried: false,
            })
            .collect();
        decide(&ToolSituation {
            failure,
            target: &"get_activities".into(),
            tool: "get_activities",
            goal: self.goal,
            learner: &learner(),
            arguments: &self.arguments,
            effects: &self.effects,
            list: ListFacts {
                old: self.old.as_ref(),
                current: self.current.as_ref(),
                is_fresh: self.is_fresh,
            },
            tried: &self.tried,
            policy: &self.policy,
            chunk_rules: &self.rules,
            failing: self.failing,
            attempts_left: self.attempts_left,
            time_left: self.time_left,
            usual_duration: Duration::from_millis(100),
            candidates: &candidates,
            learning: Some((&self.learning, now())),
        })
    }
}
