//! `relight status`: the state of a server, its problems, since when, and what helps.

use std::{io, process::ExitCode};

use clap::Args;

use super::{
    Output,
    client::ServerArguments,
    json::json,
    refusal::ServerRefusal,
    terminal::{Paint, Table, clock_time, one_line, print_line},
};
use crate::grpc::v1;

/// Most characters of what is wrong in the table.
const MAX_CHARACTERS: usize = 100;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  relight status                    what is wrong now; exit code 0 as long as the server answers
  relight status --replica NAME     one replica of a fleet, in place of all
  relight status --output json      the same for programs")]
pub(super) struct StatusArguments {
    /// Only this replica of a fleet.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    replica: String,
    /// Fails unless at least this many replicas of a fleet respond.
    #[arg(long, value_name = "NUMBER", conflicts_with = "replica")]
    replicas: Option<usize>,
    /// Output format: `text` (or `table`), or `json`.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// Requests the server's status, and shows it.
pub(super) fn run(arguments: &StatusArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(async {
        let mut admin = arguments.server.admin().await?;
        let status = admin
            .get_status(v1::GetStatusRequest {
                replica: arguments.replica.clone(),
            })
            .await
            .map_err(ServerRefusal::from)?
            .into_inner();
        match arguments.output {
            Output::Json => print_line(&serde_json::to_string_pretty(&json(
                "GetStatusResponse",
                &status,
            )?)?)?,
            Output::Text => all_lines(&status, Paint::on(&io::stdout()))
                .iter()
                .try_for_each(|line| print_line(line))?,
        }
        let responded = 1 + status.others.len();
        match arguments.replicas {
            Some(expected) if responded < expected => {
                anyhow::bail!("{responded} replicas respond, and not {expected}")
            }
            Some(_) | None => Ok(ExitCode::SUCCESS),
        }
    })
}

/// Returns the lines of each replica, and of those that did not respond.
fn all_lines(status: &v1::GetStatusResponse, paint: Paint) -> Vec<String> {
    let mut all = lines(status, paint);
    for other in &status.others {
        all.push(String::new());
        all.extend(lines(other, paint));
    }
    all.extend(silent(&status.silent, paint));
    all
}

/// Returns a line for each replica that did not respond.
pub(super) fn silent(silent: &[v1::SilentReplica], paint: Paint) -> Vec<String> {
    let lines = silent.iter().map(|one| {
        paint.red(&format!(
            "{} does not respond: {}",
            one_line(&one.replica),
            one_line(&one.reason)
        ))
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return lines;
    }
    [String::new()].into_iter().chain(lines).collect()
}

fn lines(status: &v1::GetStatusResponse, paint: Paint) -> Vec<String> {
    let (state, painted): (_, fn(Paint, &str) -> String) = match status.state() {
        v1::ServiceState::Healthy => ("healthy", Paint::green),
        v1::ServiceState::Degraded => ("degraded", Paint::yellow),
        v1::ServiceState::Draining => ("draining", Paint::yellow),
        v1::ServiceState::Unspecified => ("unknown", Paint::dim),
    };
    let since = status
        .started_at
        .as_ref()
        .map_or_else(String::new, |at| format!(", up since {}", clock_time(at)));
    let stores = status.stores.iter().map(|store| {
        let away = if store.reachable {
            String::new()
        } else {
            format!(" away ({})", one_line(&store.reason))
        };
        let kind = match store.kind() {
            v1::StoreKind::Fleet => "fleet",
            v1::StoreKind::Journal | v1::StoreKind::Unspecified => "journal",
        };
        format!("; {kind} in {}{away}", store.engine)
    });
    let mut lines = vec![
        format!(
            "{} is {}",
            one_line(&status.replica),
            paint.bold(&painted(paint, state))
        ),
        format!(
            "relight {}{since}; {} in flight, {} parked; {} watching; configuration {}{}",
            status.version,
            status.invocations_in_flight,
            status.invocations_parked,
            status.watchers,
            status.configuration_generation,
            stores.collect::<String>()
        ),
    ];
    if !status.reasons.is_empty() {
        let mut table = Table::new(&["COMPONENT", "SINCE", "WHAT IS WRONG", "WHAT HELPS"]);
        for reason in &status.reasons {
            table.row(vec![
                reason.component.clone(),
                reason
                    .since
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), clock_time),
                shortened(&one_line(&reason.message)),
                what_helps(reason).to_owned(),
            ]);
        }
        lines.push(String::new());
        lines.extend(table.lines());
    }
    lines
}

/// Returns the part that fits a table: a configuration can have many faults, which `--output json`
/// and the log have in full.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns the action that an operator can take.
fn what_helps(reason: &v1::StatusReason) -> &'static str {
    match reason
        .component
        .split_once(':')
        .map_or(reason.component.as_str(), |(kind, _)| kind)
    {
        "gate" => match reason.gate() {
            v1::GateKind::Credential => {
                "check the key and the account; it opens when a call succeeds"
            }
            v1::GateKind::Configuration => "check the model's name and what the key may use",
            v1::GateKind::Rate | v1::GateKind::Unspecified => {
                "nothing: it opens by itself; request a higher limit from the provider if it closes often"
            }
        },
        "circuit" if reason.forced => "`relight circuits force TARGET auto` gives it back",
        "circuit" => "see the provider's status page; `relight circuits` shows when it probes",
        "store" => "make it reachable again; calls that need a record are refused meanwhile",
        "tools" => {
            "see that the tool server runs and what it logs; other servers' tools are not concerned"
        }
        "configuration" => "correct the file; the earlier configuration is in force",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_shown_with_what_helps() {
        let reason = v1::StatusReason {
            component: "gate:main".to_owned(),
            message: "the credential gate of main is closed: authentication".to_owned(),
            gate: v1::GateKind::Credential.into(),
            ..v1::StatusReason::default()
        };
        let status = v1::GetStatusResponse {
            state: v1::ServiceState::Degraded.into(),
            reasons: vec![reason],
            version: "0.1.0".to_owned(),
            replica: "one".to_owned(),
            configuration_generation: 2,
            ..v1::GetStatusResponse::default()
        };
        assert_eq!(
            lines(&status, Paint::none()),
            [
                "one is degraded",
                "relight 0.1.0; 0 in flight, 0 parked; 0 watching; configuration 2",
                "",
                "COMPONENT  SINCE  WHAT IS WRONG                                          WHAT HELPS",
                "gate:main  -      the credential gate of main is closed: authentication  check the key and the account; it \
                 opens when a call succeeds",
            ]
        );
    }
}
