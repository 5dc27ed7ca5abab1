//! `relight invocations`: lists invocations, newest first.

use std::{collections::BTreeSet, io, process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use jiff::Timestamp;

use super::{
    Output,
    client::ServerArguments,
    json::json,
    refusal::ServerRefusal,
    status::silent,
    terminal::{Paint, Table, clock_time, one_line, print_line, span},
    words,
};
use crate::{
    domain::{clock::wall_now, units::parse_duration},
    grpc::{convert::time::wire_time, v1},
};

/// Most invocations that are requested at once.
const PAGE: u32 = 500;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight invocations                              the newest 20, of the caller's tenant; with an admin key of all
  relight invocations --state failed --since 1h    what failed in the last hour
  relight invocations --tenant acme --limit 500 --output json
  relight explain ID                               what happened to one of them")]
pub(super) struct InvocationsArguments {
    /// Only those of this tenant; another one than the caller's needs an admin key.
    #[arg(long, default_value = "", hide_default_value = true)]
    tenant: String,
    /// Only those on this route.
    #[arg(long, default_value = "", hide_default_value = true)]
    route: String,
    /// Only those of this operation.
    #[arg(long, default_value = "", hide_default_value = true)]
    operation: String,
    /// Only those on this thread.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    thread: String,
    /// Only those that this replica of a fleet executes, or did last.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    replica: String,
    /// Only those in this state; may be given several times, or with commas.
    #[arg(long, value_enum, value_delimiter = ',')]
    state: Vec<StateFilter>,
    /// Only those that were accepted in the last so many minutes, hours or days, such as `90s`,
    /// `15m`, `1h`, `2d`.
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

/// The state of an invocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StateFilter {
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

/// Returns a time ago.
pub(super) fn ago(text: &str) -> Result<Duration, String> {
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u64>().ok());
    match days {
        Some(days) => Ok(Duration::from_hours(days.saturating_mul(24).min(1_000_000))),
        None => parse_duration(text),
    }
}

/// Requests page after page, and shows each.
pub(super) fn run(arguments: &InvocationsArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(async {
        let mut recovery = arguments.server.recovery().await?;
        let mut request = request(arguments, wall_now());
        let mut left = arguments.limit;
        let mut found = Vec::new();
        let mut missing;
        loop {
            request.page_size = left.min(PAGE);
            let page = recovery
                .list_invocations(request.clone())
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            left = left.saturating_sub(u32::try_from(page.invocations.len()).unwrap_or(u32::MAX));
            match arguments.output {
                Output::Json => {
                    for summary in &page.invocations {
                        print_line(&json("InvocationSummary", summary)?.to_string())?;
                    }
                }
                Output::Text => found.extend(page.invocations),
            }
            missing = page.silent;
            if page.next_page_token.is_empty() || left == 0 {
                break;
            }
            request.page_token = page.next_page_token;
        }
        if matches!(arguments.output, Output::Text) {
            let paint = Paint::on(&io::stdout());
            let mut all = lines(&found, paint);
            all.extend(silent(&missing, paint));
            all.iter().try_for_each(|line| print_line(line))?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn request(arguments: &InvocationsArguments, now: Timestamp) -> v1::ListInvocationsRequest {
    let state = |state: &StateFilter| match state {
        StateFilter::Running => v1::InvocationState::Running.into(),
        StateFilter::Succeeded => v1::InvocationState::Succeeded.into(),
        StateFilter::Failed => v1::InvocationState::Failed.into(),
        StateFilter::Cancelled => v1::InvocationState::Cancelled.into(),
    };
    let since = arguments
        .since
        .map(|ago| wire_time(now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH)));
    v1::ListInvocationsRequest {
        tenant: arguments.tenant.clone(),
        route: arguments.route.clone(),
        operation: arguments.operation.clone(),
        thread_id: arguments.thread.clone(),
        replica: arguments.replica.clone(),
        states: arguments.state.iter().map(state).collect(),
        since,
        ..v1::ListInvocationsRequest::default()
    }
}

fn lines(found: &[v1::InvocationSummary], paint: Paint) -> Vec<String> {
    if found.is_empty() {
        return vec![paint.dim("none")];
    }
    let replicas: BTreeSet<&str> = found.iter().map(|it| it.replica.as_str()).collect();
    let left_out = usize::from(replicas.len() < 2);
    let headings = [
        "REPLICA",
        "BEGUN",
        "INVOCATION",
        "STATE",
        "TOOK",
        "ATTEMPTS",
        "TARGET",
        "FAILURE",
        "ROUTE",
        "TENANT",
    ];
    let mut table = Table::new(&headings[left_out..]);
    let or_dash = |text: &str| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            one_line(text)
        }
    };
    for summary in found {
        let took = summary
            .created_at
            .as_ref()
            .zip(summary.finished_at.as_ref())
            .map(|(from, to)| {
                let millis = (to.seconds - from.seconds) * 1000
                    + i64::from(to.nanos - from.nanos) / 1_000_000;
                span(u64::try_from(millis).unwrap_or_default())
            });
        let cells = vec![
            one_line(&summary.replica),
            summary
                .created_at
                .as_ref()
                .map_or_else(|| "-".to_owned(), clock_time),
            one_line(&summary.invocation_id),
            words::state(summary.state),
            took.unwrap_or_else(|| "-".to_owned()),
            if summary.attempts == 0 {
                "-".to_owned()
            } else {
                summary.attempts.to_string()
            },
            or_dash(&summary.final_target),
            words::class(summary.failure_class).to_owned(),
            or_dash(&summary.route),
            or_dash(&summary.tenant),
        ];
        table.row(cells.into_iter().skip(left_out).collect());
    }
    table.lines()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shown_one_a_line() {
        let time = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
        let failed = v1::InvocationSummary {
            invocation_id: "i-2".to_owned(),
            tenant: "acme".to_owned(),
            route: "default".to_owned(),
            state: v1::InvocationState::Failed.into(),
            created_at: None,
            finished_at: time(5),
            attempts: 4,
            failure_class: v1::FailureClass::RateLimited.into(),
            final_target: "gpt".to_owned(),
            ..v1::InvocationSummary::default()
        };
        let running = v1::InvocationSummary {
            invocation_id: "i-1".to_owned(),
            state: v1::InvocationState::Running.into(),
            ..v1::InvocationSummary::default()
        };
        assert_eq!(
            lines(&[failed, running], Paint::none()),
            [
                "BEGUN  INVOCATION  STATE    TOOK  ATTEMPTS  TARGET  FAILURE       ROUTE    TENANT",
                "-      i-2         failed   -     4         gpt     rate_limited  default  acme",
                "-      i-1         running  -     -         -       -             -        -",
            ]
        );
        assert_eq!(lines(&[], Paint::none()), ["none"]);
    }

    #[test]
    fn a_time_ago_may_be_days() {
        assert_eq!(ago("2d"), Ok(Duration::from_hours(48)));
        assert_eq!(ago("15m"), Ok(Duration::from_mins(15)));
        assert!(ago("yesterday").is_err());
    }
}
