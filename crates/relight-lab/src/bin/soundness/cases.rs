//! The cases, as `scenarios.yaml` has them: what the provider does, and what a caller may hold.

use std::{collections::VecDeque, error::Error};

use relight_lab::fake_llm::{FakeScript, FakeTurn, TOOL};
use serde::Deserialize;
use serde_json::json;

use crate::gateway::ModelUnderTest;

const CASES: &str = include_str!("../../../soundness/scenarios.yaml");

/// A case, or one for each of its dialects.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    id: String,
    /// The paragraph that explains it.
    why: String,
    #[serde(default = "openai")]
    dialects: Vec<String>,
    #[serde(default)]
    turns: VecDeque<FakeTurn>,
    #[serde(default)]
    then: FakeTurn,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    calls: CallPattern,
    #[serde(default)]
    ideal: Ideal,
    #[serde(default = "stop")]
    finish: String,
    #[serde(default = "four")]
    max_attempts: usize,
}

/// One case against one dialect.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) why: String,
    pub(crate) dialect: String,
    pub(crate) stream: bool,
    pub(crate) calls: CallPattern,
    pub(crate) ideal: Ideal,
    /// The finish reason of a whole answer.
    pub(crate) finish: String,
    /// More attempts than that are paid for nothing.
    pub(crate) max_attempts: usize,
    script: FakeScript,
}

/// Number and manner of the calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallPattern {
    #[default]
    Once,
    /// The same request again, with the same idempotency key.
    TwiceWithOneKey,
    /// The caller leaves amid the answer.
    Abandoned,
}

/// The best that a caller can hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ideal {
    /// A whole answer.
    #[default]
    Whole,
    /// An error: no gateway can do better.
    Error,
}

// === impl Case ===

impl Case {
    /// Returns the script that the provider plays.
    pub(crate) fn script(&self) -> FakeScript {
        self.script.clone()
    }

    /// Returns if the answer is a call of a tool.
    pub(crate) fn wants_tool(&self) -> bool {
        self.finish == "tool_calls"
    }

    /// Returns the body of the request.
    pub(crate) fn body(&self, model: &ModelUnderTest) -> String {
        let parameters = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let tool = json!({"type": "function", "function": {"name": TOOL, "description": "Weather", "parameters": parameters}});
        // The id keeps a cache from answering.
        let question = format!("Count, please. ({})", self.id);
        let mut body =
            json!({"model": model.model, "messages": [{"role": "user", "content": question}]});
        if self.stream {
            body["stream"] = json!(true);
        }
        if self.wants_tool() {
            body["tools"] = json!([tool]);
        }
        body.to_string()
    }

    /// Returns the body of a request that asks whether a gateway serves.
    pub(crate) fn probe(model: &ModelUnderTest) -> String {
        json!({"model": model.model, "messages": [{"role": "user", "content": "Are you there?"}]})
            .to_string()
    }
}

/// Returns all cases, one for each dialect that a case has.
pub(crate) fn all() -> Result<Vec<Case>, Box<dyn Error>> {
    let files: Vec<CaseFile> = serde_saphyr::from_str(CASES)?;
    let cases = files.into_iter().flat_map(|file| {
        let several = file.dialects.len() > 1 || file.dialects[0] != "openai";
        let dialects = file.dialects.clone();
        dialects.into_iter().map(move |dialect| Case {
            id: if several {
                format!("{dialect}: {}", file.id)
            } else {
                file.id.clone()
            },
            why: file.why.clone(),
            stream: file.stream,
            calls: file.calls,
            ideal: file.ideal,
            finish: file.finish.clone(),
            max_attempts: file.max_attempts,
            script: FakeScript {
                turns: file.turns.clone(),
                then: file.then.clone(),
            },
            dialect,
        })
    });
    Ok(cases.collect())
}

fn openai() -> Vec<String> {
    vec!["openai".to_owned()]
}

fn stop() -> String {
    "stop".to_owned()
}

const fn four() -> usize {
    4
}
