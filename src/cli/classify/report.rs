//! Formats a verdict for people and for programs.

use crate::{
    domain::failure::{Failure, InvalidRequestDetail, Wait},
    policy::{
        classify::HoldingRule,
        corpus::{HitCount, Score},
    },
};
use serde_json::{Value, json};

use crate::cli::terminal::{Paint, Table, one_line, span};

/// Returns the class, the remedy, and the reason, a line each; then the rules that hold, too, if
/// asked for.
pub(super) fn lines(verdict: &Failure, also: Option<&[HoldingRule]>, paint: Paint) -> Vec<String> {
    let class = match verdict.detail {
        Some(detail) => format!("{} ({})", verdict.class.as_str(), detail.as_str()),
        None => verdict.class.as_str().to_owned(),
    };
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let wait = verdict.retry_after.map_or_else(
        || "none stated".to_owned(),
        |wait| format!("{} (from {})", span(wait.millis()), wait.source.as_str()),
    );
    let mut facts = vec![
        ("class", paint.bold(&class)),
        ("retry helps", yes_no(verdict.retryable)),
        ("fallback helps", yes_no(verdict.fallback_helps)),
        ("wait", wait),
        ("code", verdict.class.code().as_str().to_owned()),
        ("for the user", one_line(&verdict.user_message)),
        ("hint", one_line(&verdict.recovery_hint)),
        (
            "why",
            format!("rule {}, by \"{}\"", verdict.rule, one_line(&verdict.fact)),
        ),
        ("evidence", verdict.evidence.as_str().to_owned()),
    ];
    let holding = |one: &HoldingRule| {
        let fact = one_line(&one.fact);
        format!("rule {} ({}), by \"{fact}\"", one.rule, one.class.as_str())
    };
    match also {
        Some([]) => facts.push(("would hold too", "no other rule".to_owned())),
        Some(rules) => facts.extend(rules.iter().map(|one| ("would hold too", holding(one)))),
        None => {}
    }
    let line = |(what, value)| format!("{}  {value}", paint.dim(&format!("{what:<14}")));
    facts.into_iter().map(line).collect()
}

/// Returns the same for programs.
pub(super) fn json(verdict: &Failure, also: Option<&[HoldingRule]>) -> Value {
    let mut value = json!({
        "class": verdict.class.as_str(),
        "detail": verdict.detail.map(InvalidRequestDetail::as_str),
        "retryable_same_target": verdict.retryable,
        "fallback_helps": verdict.fallback_helps,
        "retry_after_ms": verdict.retry_after.map(Wait::millis),
        "retry_after_source": verdict.retry_after.map(|wait| wait.source.as_str()),
        "code": verdict.class.code().as_str(),
        "message": verdict.message,
        "user_message": verdict.user_message,
        "recovery_hint": verdict.recovery_hint,
        "rule": verdict.rule,
        "fact": verdict.fact,
        "evidence": verdict.evidence.as_str(),
    });
    if let Some(also) = also {
        let rules = also
            .iter()
            .map(|one| json!({ "rule": one.rule, "class": one.class.as_str(), "fact": one.fact }));
        value["would_hold_too"] = rules.collect();
    }
    value
}

/// Returns the rate at which the classifier agrees, for programs.
pub(super) fn score_json(score: &Score, misses: bool) -> Value {
    let count = |count: HitCount| json!({ "right": count.right, "total": count.total });
    let confusion: Vec<Value> = score
        .confusion
        .iter()
        .map(|((expected, got), times)| json!({ "expected": expected, "got": got, "times": times }))
        .collect();
    let mut value = json!({
        "items": score.items,
        "class_strict": count(score.strict),
        "class_lenient": count(score.lenient),
        "detail": count(score.detail),
        "retryable_same_target": count(score.retryable),
        "fallback_helps": count(score.fallback),
        "retry_after_ms": count(score.waits),
        "confusion": confusion,
    });
    if misses {
        let misses = score.misses.iter().map(|miss| {
            json!({
                "id": miss.id, "field": miss.field, "expected": miss.expected, "got": miss.got, "rule": miss.rule,
            })
        });
        value["misses"] = misses.collect();
    }
    value
}

/// Returns every verdict that differs from its label.
pub(super) fn misses(score: &Score) -> Table {
    let mut table = Table::new(&["ITEM", "FIELD", "EXPECTED", "GOT", "RULE"]);
    for miss in &score.misses {
        let cells = [&miss.id, miss.field, &miss.expected, &miss.got, &miss.rule];
        table.row(cells.map(str::to_owned).into());
    }
    table
}
