//! `relight watch`: a server's recovery events as they happen, one a line.
//!
//! A watch that breaks is resumed behind the last event received. Missed events are reported.

use std::{io, process::ExitCode, time::Duration};

use crate::{
    config::fault::nearest,
    grpc::v1::{self, watch_recovery_request::Start},
};
use clap::{Args, ValueEnum};
use jiff::{Timestamp, tz::TimeZone};
use tonic::{Code, Status};

use super::{
    Output,
    client::{RecoveryClient, ServerArguments, Unreachable},
    event_line,
    json::json,
    key_value,
    refusal::ServerRefusal,
    terminal::{Paint, one_line, print_line, print_note, span},
    words,
};

const EXAMPLES: &str = "\
Examples:
  relight watch                                          everything from now on
  relight watch --from-start --min-severity warning      what went wrong, as far back as the server remembers
  relight watch --type circuit_opened --type circuit_closed
  relight watch --replica relight-0                      one replica of a fleet, in place of all
  relight watch --label team=blue --output json | jq .";

/// The wait before a broken watch is taken up again: doubled each time, up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// Selection of events, and the start.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct WatchArguments {
    /// Go on behind this event.
    #[arg(long, value_name = "CURSOR", conflicts_with = "from_start")]
    after: Option<String>,
    /// Begin with the oldest event that the server still has, in place of now.
    #[arg(long)]
    from_start: bool,
    /// Only events of this invocation; may be repeated, as all filters.
    #[arg(long = "invocation", value_name = "ID")]
    invocations: Vec<String>,
    /// Only events on this route.
    #[arg(long = "route", value_name = "NAME")]
    routes: Vec<String>,
    /// Only events of this operation.
    #[arg(long = "operation", value_name = "NAME")]
    operations: Vec<String>,
    /// Only events of this target.
    #[arg(long = "target", value_name = "ID")]
    targets: Vec<String>,
    /// Only events of this type (`recovery_attempted`, `circuit_opened`, …).
    #[arg(long = "type", value_name = "TYPE", value_parser = event_type)]
    types: Vec<v1::RecoveryEventType>,
    /// Only events that matter at least this much.
    #[arg(long, value_enum, default_value_t)]
    min_severity: Least,
    /// Only events of this replica of a fleet.
    #[arg(long = "replica", value_name = "NAME")]
    replicas: Vec<String>,
    /// Only events of invocations with this label.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// The least severity.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum Least {
    /// The course of things.
    #[default]
    Info,
    /// Something failed and is being recovered.
    Warning,
    /// Something failed for good, or a protection acted.
    Error,
}

/// Follows until it is interrupted.
pub(super) fn run(arguments: &WatchArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(follow(arguments))
}

async fn follow(arguments: &WatchArguments) -> anyhow::Result<ExitCode> {
    // Without a server at the start the command fails at once; a server that was there may come
    // back.
    let mut client = arguments.server.recovery().await?;
    let mut cursor = arguments.after.clone();
    let mut wait = FIRST_WAIT;
    let mut was_reached = false;
    loop {
        let mut seen = false;
        let ended = stream(arguments, &mut client, &mut cursor, &mut seen).await?;
        was_reached |= !Unreachable::is_cause_of(&ended);
        if !was_reached || !may_pass(&ended) {
            return Err(ServerRefusal::from(ended).into());
        }
        if seen {
            wait = FIRST_WAIT;
        }
        let ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        print_note(&format!(
            "The watch broke ({}); taking it up again in {}.",
            one_line(ended.message()),
            span(ms)
        ));
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Shows events until the stream ends, and returns how it ended.
///
/// # Errors
/// When standard output is closed.
async fn stream(
    arguments: &WatchArguments,
    client: &mut RecoveryClient,
    cursor: &mut Option<String>,
    seen: &mut bool,
) -> anyhow::Result<Status> {
    let request = arguments.request(cursor.clone());
    let mut events = match client.watch_recovery(request).await {
        Ok(response) => response.into_inner(),
        Err(status) => return Ok(status),
    };
    let paint = Paint::on(&io::stdout());
    loop {
        match events.message().await {
            Ok(Some(response)) => {
                let Some(event) = response.event else {
                    continue;
                };
                arguments.show(&event, paint)?;
                *seen = true;
                if !event.cursor.is_empty() {
                    *cursor = Some(event.cursor);
                }
            }
            Ok(None) => return Ok(Status::unavailable("the server ended it")),
            Err(status) => return Ok(status),
        }
    }
}

/// Returns whether a watch that ended this way may be taken up again.
fn may_pass(ended: &Status) -> bool {
    match ended.code() {
        Code::Unavailable
        | Code::Unknown
        | Code::Internal
        | Code::Aborted
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::ResourceExhausted
        | Code::Ok => true,
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented
        | Code::DataLoss
        | Code::Unauthenticated => false,
    }
}

fn event_type(name: &str) -> Result<v1::RecoveryEventType, String> {
    let wanted = format!(
        "RECOVERY_EVENT_TYPE_{}",
        name.to_uppercase().replace('-', "_")
    );
    if let Some(found) =
        v1::RecoveryEventType::from_str_name(&wanted).filter(|found| *found as i32 != 0)
    {
        return Ok(found);
    }
    let names: Vec<String> = (1..=i32::from(i8::MAX))
        .map_while(|number| v1::RecoveryEventType::try_from(number).ok())
        .map(|known| {
            known
                .as_str_name()
                .trim_start_matches("RECOVERY_EVENT_TYPE_")
                .to_lowercase()
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(match nearest(name, &names) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("there is {}", names.join(", ")),
    })
}

// === impl WatchArguments ===

impl WatchArguments {
    fn request(&self, cursor: Option<String>) -> v1::WatchRecoveryRequest {
        let filter = v1::RecoveryEventFilter {
            invocation_ids: self.invocations.clone(),
            routes: self.routes.clone(),
            operations: self.operations.clone(),
            targets: self.targets.clone(),
            event_types: self.types.iter().map(|wanted| i32::from(*wanted)).collect(),
            labels: self.labels.iter().cloned().collect(),
            replicas: self.replicas.clone(),
            min_severity: match self.min_severity {
                Least::Info => v1::Severity::Info,
                Least::Warning => v1::Severity::Warning,
                Least::Error => v1::Severity::Error,
            }
            .into(),
            ..v1::RecoveryEventFilter::default()
        };
        let start = match cursor {
            Some(cursor) => Start::After(cursor),
            None if self.from_start => Start::FromStart(true),
            None => Start::Live(true),
        };
        v1::WatchRecoveryRequest {
            filter: Some(filter),
            start: Some(start),
        }
    }

    fn show(&self, event: &v1::RecoveryEvent, paint: Paint) -> anyhow::Result<()> {
        let Some(words) = event_line::what(event) else {
            return Ok(());
        };
        match self.output {
            Output::Json => print_line(&json("RecoveryEvent", event)?.to_string())?,
            Output::Text => print_line(&line(event, &words, paint))?,
        }
        Ok(())
    }
}

/// Returns the time, the severity, the replica in a fleet, the place, the event, and the one it
/// concerns.
fn line(event: &v1::RecoveryEvent, words: &str, paint: Paint) -> String {
    let at = event
        .time
        .as_ref()
        .and_then(|time| Timestamp::new(time.seconds, time.nanos).ok())
        .unwrap_or_default();
    let time = at
        .to_zoned(TimeZone::system())
        .strftime("%H:%M:%S%.3f")
        .to_string();
    let place = if event.route.is_empty() {
        "-"
    } else {
        &event.route
    };
    let whose = match event.invocation_id.as_str() {
        "" => String::new(),
        invocation => format!("  {}", one_line(invocation)),
    };
    let replica = match event.replica.as_str() {
        "" => String::new(),
        replica => format!("{:<12}  ", one_line(replica)),
    };
    format!(
        "{}  {:<5}  {replica}{:<12}  {}{}",
        paint.dim(&time),
        words::severity(event.severity),
        one_line(place),
        event_line::painted(event, words, paint),
        paint.dim(&whose)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_in_the_api_and_a_wrong_one_gets_the_nearest() {
        assert_eq!(
            event_type("circuit_opened"),
            Ok(v1::RecoveryEventType::CircuitOpened)
        );
        assert_eq!(
            event_type("circuit-opened"),
            Ok(v1::RecoveryEventType::CircuitOpened)
        );
        assert_eq!(
            event_type("circuit_opend"),
            Err("did you mean `circuit_opened`?".to_owned())
        );
        assert!(
            event_type("unspecified")
                .unwrap_err()
                .contains("store_found")
        );
    }

    #[test]
    fn a_watch_is_resumed_unless_the_server_rejects_it() {
        assert!(may_pass(&Status::unavailable("draining")));
        assert!(!may_pass(&Status::invalid_argument("after is no cursor")));
        assert!(!may_pass(&Status::unauthenticated(
            "a valid credential is required"
        )));
    }
}
