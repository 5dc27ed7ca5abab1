//! `relight releases`: versions on trial, by which figures they are judged, and an operator's hand
//! on them.

use std::{io, process::ExitCode};

use crate::grpc::v1;
use clap::{Args, Subcommand};

use super::{
    Output,
    client::ServerArguments,
    json::json,
    refusal::ServerRefusal,
    terminal::{Paint, Table, clock_time, print_line},
    words,
};

const EXAMPLES: &str = "\
Examples:
  relight releases                                              every release with its share and figures
  relight releases show fast                                    the releases of one target, with all decisions
  relight releases rollback fast-next@1f0c2d3e --reason \"slow\"  send its traffic back to the stable release
  relight releases promote fast-next@1f0c2d3e                   make it the stable release
  relight releases pin fast                                     leave its releases as they are; `unpin` ends that";

/// Operation on releases; without a command, they are listed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ReleasesArguments {
    #[command(subcommand)]
    command: Option<ReleasesCommand>,
    /// The form of the output: `text` (or `table`), or `json`.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Subcommand)]
enum ReleasesCommand {
    /// List releases with their share of the traffic and their figures.
    List,
    /// Show the releases of one target or tool server, with every decision and why it was made.
    Show {
        /// The target or tool server.
        subject: String,
    },
    /// Send the traffic of a release back to the stable one.
    Rollback(ReleaseChange),
    /// Make a release the stable one.
    Promote(ReleaseChange),
    /// Leave the releases of a target or tool server as they are, whatever their figures.
    Pin(Pin),
    /// Let the releases of a target or tool server be judged again.
    Unpin(Pin),
}

#[derive(Debug, Args)]
struct ReleaseChange {
    /// The release, by its id.
    release: String,
    /// Reason, for the record.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
    /// Leave its target as it then is, whatever the figures; also overrides a freeze of promotion.
    #[arg(long)]
    pin: bool,
}

#[derive(Debug, Args)]
struct Pin {
    /// The target or tool server.
    subject: String,
    /// Reason, for the record.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    reason: String,
}

/// Does it, and shows what is then.
pub(super) fn run(arguments: &ReleasesArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(steer(arguments))
}

async fn steer(arguments: &ReleasesArguments) -> anyhow::Result<ExitCode> {
    let mut admin = arguments.server.admin().await?;
    match arguments.command.as_ref().unwrap_or(&ReleasesCommand::List) {
        ReleasesCommand::List => {
            let listed = admin
                .list_releases(v1::ListReleasesRequest::default())
                .await
                .map_err(ServerRefusal::from)?;
            show(arguments.output, &listed.into_inner(), false)?;
        }
        ReleasesCommand::Show { subject } => {
            let request = v1::ListReleasesRequest {
                subject: subject.clone(),
            };
            let listed = admin
                .list_releases(request)
                .await
                .map_err(ServerRefusal::from)?;
            show(arguments.output, &listed.into_inner(), true)?;
        }
        ReleasesCommand::Rollback(ReleaseChange {
            release,
            reason,
            pin,
        }) => {
            let request = v1::RollbackReleaseRequest {
                release_id: release.clone(),
                reason: reason.clone(),
                pin: *pin,
            };
            let done = admin
                .rollback_release(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            let stable = done
                .stable
                .as_ref()
                .map(|stable| stable.id.clone())
                .unwrap_or_default();
            match arguments.output {
                Output::Json => print_line(&serde_json::to_string_pretty(&json(
                    "RollbackReleaseResponse",
                    &done,
                )?)?)?,
                Output::Text => print_line(&format!(
                    "{release} was rolled back; {stable} takes its traffic."
                ))?,
            }
        }
        ReleasesCommand::Promote(ReleaseChange {
            release,
            reason,
            pin,
        }) => {
            let request = v1::PromoteReleaseRequest {
                release_id: release.clone(),
                reason: reason.clone(),
                pin: *pin,
            };
            let done = admin
                .promote_release(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            match arguments.output {
                Output::Json => print_line(&serde_json::to_string_pretty(&json(
                    "PromoteReleaseResponse",
                    &done,
                )?)?)?,
                Output::Text => print_line(&format!("{release} is the stable release."))?,
            }
        }
        ReleasesCommand::Pin(pin) => set_pin(&mut admin, arguments.output, pin, true).await?,
        ReleasesCommand::Unpin(pin) => set_pin(&mut admin, arguments.output, pin, false).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn set_pin(
    admin: &mut super::client::AdminClient,
    output: Output,
    pin: &Pin,
    pinned: bool,
) -> anyhow::Result<()> {
    let request = v1::PinReleaseRequest {
        subject: pin.subject.clone(),
        pinned,
        reason: pin.reason.clone(),
    };
    let done = admin
        .pin_release(request)
        .await
        .map_err(ServerRefusal::from)?
        .into_inner();
    match output {
        Output::Json => print_line(&serde_json::to_string_pretty(&json(
            "PinReleaseResponse",
            &done,
        )?)?)?,
        Output::Text if pinned => print_line(&format!(
            "The releases of {} stay as they are.",
            pin.subject
        ))?,
        Output::Text => print_line(&format!(
            "The releases of {} are judged again.",
            pin.subject
        ))?,
    }
    Ok(())
}

fn show(
    output: Output,
    listed: &v1::ListReleasesResponse,
    with_decisions: bool,
) -> anyhow::Result<()> {
    if output == Output::Json {
        print_line(&serde_json::to_string_pretty(&json(
            "ListReleasesResponse",
            listed,
        )?)?)?;
        return Ok(());
    }
    if listed.releases.is_empty() {
        print_line(
            "No releases are watched: `releases.subjects` of the configuration names none.",
        )?;
        return Ok(());
    }
    let paint = Paint::on(&io::stdout());
    for (index, line) in table(&listed.releases).lines().into_iter().enumerate() {
        let release = index
            .checked_sub(1)
            .and_then(|row| listed.releases.get(row));
        print_line(&match release {
            None => paint.bold(&line),
            Some(release) if is_rolled_back(release) => paint.red(&line),
            Some(_) => line,
        })?;
    }
    if with_decisions {
        for release in &listed.releases {
            for decision in &release.decisions {
                let time = decision
                    .time
                    .as_ref()
                    .map_or_else(|| "-".to_owned(), clock_time);
                let what = words::release_action(decision.action);
                let provisional = if decision.provisional {
                    " provisionally"
                } else {
                    ""
                };
                let by = words::release_lane(decision.lane);
                let reason = Some(&decision.reason).filter(|reason| !reason.is_empty());
                let because = reason
                    .map(|reason| format!(": {reason}"))
                    .unwrap_or_default();
                print_line(&format!(
                    "{time}  {}  {what}{provisional} by {by}{because}",
                    release.id
                ))?;
            }
        }
    }
    Ok(())
}

fn is_rolled_back(release: &v1::Release) -> bool {
    matches!(
        release.state(),
        v1::ReleaseState::RolledBack | v1::ReleaseState::ProvisionallyRolledBack
    )
}

fn table(releases: &[v1::Release]) -> Table {
    let headings = [
        "SUBJECT",
        "RELEASE",
        "CHANNEL",
        "STATE",
        "SHARE",
        "EXECUTIONS",
        "FAILED",
        "SUCCESS",
        "STABLE'S",
        "E-VALUE",
    ];
    let mut table = Table::new(&headings);
    for release in releases {
        let evidence = figures(release);
        let percent = |ratio: Option<f64>| {
            ratio.map_or_else(|| "-".to_owned(), |it| format!("{:.0} %", it * 100.0))
        };
        table.row(vec![
            release.subject.clone(),
            release.id.clone(),
            words::release_channel(release.channel),
            state(release),
            format!("{:.0} %", release.traffic_share * 100.0),
            evidence.executions.to_string(),
            evidence.failures.to_string(),
            percent(evidence.window_success_ratio),
            percent(evidence.baseline_success_ratio),
            evidence
                .e_value
                .map_or_else(|| "-".to_owned(), |value| format!("{value:.1}")),
        ]);
    }
    table
}

/// Returns the figures of a release: after a rollback those that led to it, until there are newer
/// ones.
fn figures(release: &v1::Release) -> v1::ReleaseEvidence {
    let now = release.evidence.clone().unwrap_or_default();
    if !is_rolled_back(release) || now.window_success_ratio.is_some() {
        return now;
    }
    let mut rollbacks = release
        .decisions
        .iter()
        .filter(|it| it.action() == v1::ReleaseAction::RolledBack);
    rollbacks
        .next_back()
        .and_then(|rollback| rollback.evidence.clone())
        .unwrap_or(now)
}

/// Returns the state, and what keeps it so.
fn state(release: &v1::Release) -> String {
    let mut words = vec![words::release_state(release.state)];
    let kept = [
        (release.pinned, "pinned"),
        (release.promotion_frozen, "promotion frozen"),
        (release.unused, "unused"),
    ];
    words.extend(
        kept.into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, word)| word.to_owned()),
    );
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_shows_its_share_its_figures_and_what_keeps_it() {
        let release = v1::Release {
            subject: "fast".to_owned(),
            id: "next@1".to_owned(),
            channel: v1::ReleaseChannel::Candidate.into(),
            state: v1::ReleaseState::ProvisionallyRolledBack.into(),
            traffic_share: 0.05,
            pinned: true,
            evidence: Some(v1::ReleaseEvidence {
                executions: 12,
                failures: 5,
                window_success_ratio: Some(0.58),
                baseline_success_ratio: Some(0.97),
                e_value: Some(41.25),
                ..v1::ReleaseEvidence::default()
            }),
            ..v1::Release::default()
        };
        let lines = table(&[release]).lines();
        let cells: Vec<&str> = lines[1]
            .split("  ")
            .filter(|cell| !cell.is_empty())
            .map(str::trim)
            .collect();
        let state = "provisionally rolled back, pinned";
        assert_eq!(
            cells,
            [
                "fast",
                "next@1",
                "candidate",
                state,
                "5 %",
                "12",
                "5",
                "58 %",
                "97 %",
                "41.2"
            ]
        );
    }
}
