//! `relight explain`: what happened to one call, attempt by attempt, and why.

use std::{io, process::ExitCode};

use clap::Args;

use super::{
    Output,
    client::ServerArguments,
    invoke::attempts_table,
    json::json,
    refusal::ServerRefusal,
    terminal::{Paint, Table, clock_time, one_line, print_line, span},
    words,
};
use crate::grpc::v1::{self, get_invocation_request::Invocation, invocation_record::Outcome};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight explain 01923c5e-7d1f-7c3a-9b8e-2f1d0c4b5a69    by its id: x-relight-invocation, or invocation_id of a response
  relight explain --request-id order-17                   by the caller's own id for it")]
pub(super) struct ExplainArguments {
    /// The invocation's id.
    #[arg(required_unless_present = "request_id")]
    invocation: Option<String>,
    /// The caller's own id, in place of the invocation's.
    #[arg(long, value_name = "ID", conflicts_with = "invocation")]
    request_id: Option<String>,
    /// Output format: `text` (or `table`), or `json`.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// Requests the record, and shows it.
pub(super) fn run(arguments: &ExplainArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(async {
        let by_request = || arguments.request_id.clone().map(Invocation::RequestId);
        let invocation = arguments
            .invocation
            .clone()
            .map(Invocation::InvocationId)
            .or_else(by_request);
        let mut recovery = arguments.server.recovery().await?;
        let found = recovery
            .get_invocation(v1::GetInvocationRequest { invocation })
            .await;
        let record = found
            .map_err(ServerRefusal::from)?
            .into_inner()
            .invocation
            .unwrap_or_default();
        match arguments.output {
            Output::Json => print_line(&serde_json::to_string_pretty(&json(
                "InvocationRecord",
                &record,
            )?)?)?,
            Output::Text => lines(&record, Paint::on(&io::stdout()))
                .iter()
                .try_for_each(|line| print_line(line))?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Such as `24 tokens in, 4 out`; nothing if none are known.
fn tokens(usage: &v1::Usage) -> Option<String> {
    let about = if usage.exactness() == v1::UsageExactness::Estimated {
        "about "
    } else {
        ""
    };
    Some(format!(
        "{about}{} tokens in, {} out",
        usage.input_tokens?, usage.output_tokens?
    ))
}

fn lines(record: &v1::InvocationRecord, paint: Paint) -> Vec<String> {
    let mut lines = vec![
        heading(record, paint),
        paint.dim(&facts(record).join(" · ")),
    ];
    if !record.reasoning.is_empty() {
        lines.push(one_line(&record.reasoning));
    }
    lines.extend(spent_line(record));
    lines.extend(record.cost.as_ref().map(|cost| cost_line(record, cost)));
    if !record.attempts.is_empty() {
        lines.push(String::new());
        lines.extend(attempts_table(&record.attempts).lines());
    }
    for attempt in record
        .attempts
        .iter()
        .filter(|attempt| !attempt.injected_note.is_empty())
    {
        lines.push(format!(
            "note of attempt {}: {}",
            attempt.number,
            one_line(&attempt.injected_note)
        ));
    }
    if !record.decisions.is_empty() {
        lines.push(String::new());
        lines.extend(decisions_table(&record.decisions).lines());
    }
    lines
}

/// Returns the invocation's id, how it ended and after what time.
fn heading(record: &v1::InvocationRecord, paint: Paint) -> String {
    let ended = match &record.outcome {
        Some(Outcome::Completion(_)) => paint.green("answered"),
        Some(Outcome::Failure(failure)) => paint.red(&format!(
            "failed: {}: {}",
            words::class(failure.failure_class),
            one_line(&failure.message)
        )),
        None if record.finished_at.is_some() => "ended; its outcome is no longer kept".to_owned(),
        None => paint.yellow("running"),
    };
    let took = record
        .created_at
        .as_ref()
        .zip(record.finished_at.as_ref())
        .map(|(from, to)| {
            let millis =
                (to.seconds - from.seconds) * 1000 + i64::from(to.nanos - from.nanos) / 1_000_000;
            format!(" after {}", span(u64::try_from(millis).unwrap_or_default()))
        });
    format!(
        "{} {ended}{}",
        one_line(&record.invocation_id),
        took.unwrap_or_default()
    )
}

/// Returns the time and the caller of its start, and the place of its trace.
fn facts(record: &v1::InvocationRecord) -> Vec<String> {
    let begun = record
        .created_at
        .as_ref()
        .map_or_else(|| "-".to_owned(), clock_time);
    let mut facts = vec![
        format!("begun {begun}"),
        format!("route {}", record.route),
        format!("operation {}", record.operation),
    ];
    for (name, value) in [
        ("thread", &record.thread_id),
        ("request id", &record.request_id),
        ("target", &record.final_target),
    ] {
        if !value.is_empty() {
            facts.push(format!("{name} {}", one_line(value)));
        }
    }
    if let Some(trace) = record
        .attempts
        .iter()
        .map(|attempt| &attempt.trace_id)
        .find(|id| !id.is_empty())
    {
        facts.push(format!("trace {trace}"));
    }
    facts
}

/// Returns the tokens of all attempts, and of the response alone; nothing if none are known.
fn spent_line(record: &v1::InvocationRecord) -> Option<String> {
    let spent = tokens(record.usage.as_ref()?)?;
    let of_response = match &record.outcome {
        Some(Outcome::Completion(completion)) => completion.usage.as_ref().and_then(tokens),
        Some(Outcome::Failure(_)) | None => None,
    };
    let of_response = of_response.map_or_else(String::new, |tokens| {
        format!("; for the response alone {tokens}")
    });
    Some(format!("spent {spent}{of_response}"))
}

/// Returns the cost of all attempts, of the response alone, and the difference.
fn cost_line(record: &v1::InvocationRecord, cost: &v1::Cost) -> String {
    let is_estimate = record
        .usage
        .as_ref()
        .is_some_and(|usage| usage.exactness() == v1::UsageExactness::Estimated);
    let money = |micros: u64| {
        format!(
            "{}.{:06} {}",
            micros / 1_000_000,
            micros % 1_000_000,
            cost.currency
        )
    };
    let about = if is_estimate { "about " } else { "" };
    let spent = cost.spent_micros;
    let delivered = cost.delivered_micros;
    let recovery = money(spent.saturating_sub(delivered));
    format!(
        "cost {about}{}; for the response alone {}; for recovery {about}{recovery}",
        money(spent),
        money(delivered)
    )
}

fn decisions_table(decisions: &[v1::Decision]) -> Table {
    let mut table = Table::new(&["AFTER", "FAILURE", "DECISION", "NEXT", "WAIT", "BECAUSE"]);
    for decision in decisions {
        table.row(vec![
            decision.attempt.to_string(),
            words::class(decision.failure_class).to_owned(),
            words::strategies(&[decision.strategy]),
            if decision.target.is_empty() {
                "-".to_owned()
            } else {
                decision.target.clone()
            },
            if decision.wait_ms == 0 {
                "-".to_owned()
            } else {
                span(decision.wait_ms)
            },
            one_line(&decision.reason),
        ]);
    }
    table
}
