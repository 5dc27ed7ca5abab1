//! `relight executions`: which tools were executed, newest first; and `relight learning`: what was
//! learnt from that.

use std::{io, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::{
    Output,
    client::ServerArguments,
    invocations::ago,
    json::json,
    refusal::ServerRefusal,
    terminal::{Paint, Table, clock_time, one_line, print_line, span},
    words,
};
use crate::{
    domain::clock::wall_now,
    grpc::{convert::time::wire_time, v1},
};

/// Most executions that are requested at once.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight executions                                  the newest 20, of the caller's tenant; with an admin key of all
  relight executions --tool strava/get_activities --state failed --since 1h
  relight executions --invocation ID --output json    every execution of one call, with its arguments")]
pub(super) struct ExecutionsArguments {
    /// Only those of this tenant; another one than the caller's needs an admin key.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Only those of this tool.
    #[arg(
        long,
        value_name = "SERVER/NAME",
        default_value = "",
        hide_default_value = true
    )]
    tool: String,
    /// Only those of this operation.
    #[arg(long, default_value = "", hide_default_value = true)]
    operation: String,
    /// Only those on this thread.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    thread: String,
    /// Only those of this invocation.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    invocation: String,
    /// Only those that ended so.
    #[arg(long, value_enum)]
    state: Option<ExecutionFilter>,
    /// Only those that started in the last so many minutes, hours or days, such as `90s`, `15m`,
    /// `1h`, `2d`.
    #[arg(long, value_name = "DURATION", value_parser = ago)]
    since: Option<Duration>,
    /// Largest number to show.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    limit: u32,
    /// Output format: `text` (or `table`), or `json`: one object a line.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight learning                                    which tool was right in place of which, and how often each succeeds
  relight learning --forget                           forgets all of it
  relight learning --forget --tool get_activities     forgets what was learnt about one tool")]
pub(super) struct LearningArguments {
    /// Forgets the learnt facts; if `--tenant`, `--operation` and `--tool` are given, only those.
    #[arg(long)]
    forget: bool,
    /// Only what was learnt from calls of this tenant.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        requires = "forget"
    )]
    tenant: String,
    /// Only what was learnt in this operation.
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        requires = "forget"
    )]
    operation: String,
    /// Only what was learnt about this tool: `server/tool`, or its name at every server.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true,
        requires = "forget"
    )]
    tool: String,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// End of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExecutionFilter {
    Succeeded,
    Failed,
    Unknown,
    Cancelled,
}

/// Requests page after page, and shows each.
pub(super) fn run(arguments: &ExecutionsArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(async {
        let mut recovery = arguments.server.recovery().await?;
        let mut request = request(arguments, wall_now());
        let mut left = arguments.limit;
        let mut found = Vec::new();
        loop {
            request.page_size = left.min(PAGE);
            let page = recovery
                .list_executions(request.clone())
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            left = left.saturating_sub(u32::try_from(page.executions.len()).unwrap_or(u32::MAX));
            match arguments.output {
                Output::Json => {
                    for execution in &page.executions {
                        print_line(&json("ToolExecution", execution)?.to_string())?;
                    }
                }
                Output::Text => found.extend(page.executions),
            }
            if page.next_page_token.is_empty() || left == 0 {
                break;
            }
            request.page_token = page.next_page_token;
        }
        if matches!(arguments.output, Output::Text) {
            lines(&found, Paint::on(&io::stdout()))
                .iter()
                .try_for_each(|line| print_line(line))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Shows or forgets what was learnt.
pub(super) fn learning(arguments: &LearningArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(async {
        let mut admin = arguments.server.admin().await?;
        if arguments.forget {
            let request = v1::ResetToolLearningRequest {
                operation: arguments.operation.clone(),
                tool: arguments.tool.clone(),
                tenant: arguments.tenant.clone(),
            };
            let response = admin
                .reset_tool_learning(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            match arguments.output {
                Output::Json => {
                    print_line(&json("ResetToolLearningResponse", &response)?.to_string())?;
                }
                Output::Text => {
                    print_line(&format!("{} entries were forgotten", response.forgotten))?;
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        let request = v1::GetToolLearningRequest {};
        let response = admin
            .get_tool_learning(request)
            .await
            .map_err(ServerRefusal::from)?
            .into_inner();
        match arguments.output {
            Output::Json => print_line(&json("GetToolLearningResponse", &response)?.to_string())?,
            Output::Text => {
                learnt(&response, Paint::on(&io::stdout()))
                    .iter()
                    .try_for_each(|line| print_line(line))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn request(arguments: &ExecutionsArguments, now: Timestamp) -> v1::ListExecutionsRequest {
    let state = arguments
        .state
        .map_or(v1::ExecutionState::Unspecified, |state| match state {
            ExecutionFilter::Succeeded => v1::ExecutionState::Succeeded,
            ExecutionFilter::Failed => v1::ExecutionState::Failed,
            ExecutionFilter::Unknown => v1::ExecutionState::Unknown,
            ExecutionFilter::Cancelled => v1::ExecutionState::Cancelled,
        });
    let since = arguments
        .since
        .map(|ago| wire_time(now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH)));
    v1::ListExecutionsRequest {
        tenant: arguments.tenant.clone(),
        target: arguments.tool.clone(),
        operation: arguments.operation.clone(),
        thread_id: arguments.thread.clone(),
        invocation_id: arguments.invocation.clone(),
        state: state.into(),
        since,
        ..v1::ListExecutionsRequest::default()
    }
}

fn lines(found: &[v1::ToolExecution], paint: Paint) -> Vec<String> {
    if found.is_empty() {
        return vec![paint.dim("none")];
    }
    let mut table = Table::new(&[
        "BEGUN",
        "TOOL",
        "WHY",
        "STATE",
        "TOOK",
        "FAILURE",
        "ARGUMENTS",
        "INVOCATION",
    ]);
    for one in found {
        table.row(vec![
            one.started_at
                .as_ref()
                .map_or_else(|| "-".to_owned(), clock_time),
            one_line(&one.target),
            one_line(&one.cause),
            execution_state(one.state).to_owned(),
            span(one.duration_ms),
            words::class(one.failure_class).to_owned(),
            if one.arguments_json.is_empty() {
                "-".to_owned()
            } else {
                one_line(&one.arguments_json)
            },
            one_line(&one.invocation_id),
        ]);
    }
    table.lines()
}

fn learnt(learning: &v1::GetToolLearningResponse, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    if !learning.confusions.is_empty() {
        let mut table = Table::new(&["TENANT", "OPERATION", "CALLED", "MEANT", "WEIGHT"]);
        for pair in &learning.confusions {
            let chosen = one_line(&pair.chosen);
            let right = one_line(&pair.right);
            table.row(vec![
                one_line(&pair.tenant),
                one_line(&pair.operation),
                chosen,
                right,
                format!("{:.2}", pair.weight),
            ]);
        }
        lines.extend(table.lines());
        lines.push(String::new());
    }
    if !learning.records.is_empty() {
        let mut table = Table::new(&["TENANT", "OPERATION", "TOOL", "SUCCEEDED", "FAILED"]);
        for record in &learning.records {
            let won = format!("{:.2}", record.succeeded);
            let lost = format!("{:.2}", record.failed);
            table.row(vec![
                one_line(&record.tenant),
                one_line(&record.operation),
                one_line(&record.tool),
                won,
                lost,
            ]);
        }
        lines.extend(table.lines());
    }
    if lines.is_empty() {
        vec![paint.dim("nothing was learnt yet")]
    } else {
        lines
    }
}

fn execution_state(state: i32) -> &'static str {
    match v1::ExecutionState::try_from(state) {
        Ok(v1::ExecutionState::Succeeded) => "succeeded",
        Ok(v1::ExecutionState::Failed) => "failed",
        Ok(v1::ExecutionState::Unknown) => "unknown",
        Ok(v1::ExecutionState::Cancelled) => "cancelled",
        Ok(v1::ExecutionState::Unspecified) | Err(_) => "-",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_shown_one_a_line() {
        let failed = v1::ToolExecution {
            invocation_id: "i-1".to_owned(),
            target: "strava/get_activities".to_owned(),
            cause: "initial".to_owned(),
            state: v1::ExecutionState::Failed.into(),
            failure_class: v1::FailureClass::Timeout.into(),
            duration_ms: 41,
            ..v1::ToolExecution::default()
        };
        assert_eq!(
            lines(&[failed], Paint::none()),
            [
                "BEGUN  TOOL                   WHY      STATE   TOOK   FAILURE  ARGUMENTS  INVOCATION",
                "-      strava/get_activities  initial  failed  41 ms  timeout  -          i-1",
            ]
        );
        assert_eq!(lines(&[], Paint::none()), ["none"]);
    }

    #[test]
    fn what_was_learnt_is_shown_by_pair_and_by_tool() {
        let pair = v1::ToolConfusion {
            tenant: "acme".to_owned(),
            operation: "executor".to_owned(),
            chosen: "a".to_owned(),
            right: "b".to_owned(),
            weight: 1.0,
            ..v1::ToolConfusion::default()
        };
        let learning = v1::GetToolLearningResponse {
            confusions: vec![pair],
            records: Vec::new(),
        };
        let shown = learnt(&learning, Paint::none());
        assert_eq!(shown[1], "acme    executor   a       b      1.00");
        assert_eq!(
            learnt(&v1::GetToolLearningResponse::default(), Paint::none()),
            ["nothing was learnt yet"]
        );
    }
}
