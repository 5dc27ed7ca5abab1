//! `relight top`: current activity, target by target and tenant by tenant, redrawn until it is
//! interrupted.
//!
//! Rates are counted from the server's events; the state of targets is fetched again for each
//! table.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, IsTerminal as _, Write as _},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tonic::Status;

use super::{
    circuits,
    client::{AdminClient, ServerArguments},
    refusal::ServerRefusal,
    status::silent,
    terminal::{Paint, Table, one_line, print_line, span},
    words,
};
use crate::{
    domain::units::parse_duration,
    grpc::v1::{self, recovery_event::Body, watch_recovery_request::Start},
};

/// Over which time rates are counted.
const WINDOW: Duration = Duration::from_secs(10);
/// Number of tenants that are shown, those with the most calls first.
const TENANTS: usize = 8;
/// Sequence that clears the terminal and moves to its first line.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Debug, Args)]
#[command(after_help = "\
Rates are those of the last 10 seconds, or since it began; the first table comes after one interval. Needs an admin key
where the server asks for keys.

Examples:
  relight top                            redrawn every two seconds; ctrl-c ends it
  relight top --interval 10s --tables 6  for one minute, such as into a file: tables then follow each other")]
pub(super) struct TopArguments {
    /// Interval at which it is drawn, such as `500ms` or `5s`.
    #[arg(long, value_name = "DURATION", value_parser = every, default_value = "2s")]
    interval: Duration,
    /// Only this replica of a fleet.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    replica: String,
    /// Largest number of tables; without, until it is interrupted.
    #[arg(long, value_name = "NUMBER")]
    tables: Option<u32>,
    #[command(flatten)]
    server: ServerArguments,
}

/// Counts over a recent period.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct RecentActivity {
    /// By replica and target.
    targets: BTreeMap<(String, String), TargetActivity>,
    tenants: BTreeMap<String, CallActivity>,
}

/// Counts of one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TargetActivity {
    attempts: u32,
    failed: u32,
    retries: u32,
}

/// Counts of how the calls of one tenant ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct CallActivity {
    calls: u32,
    recovered: u32,
    failed: u32,
}

/// Counts over the last [`WINDOW`], table by table.
#[derive(Debug, Default)]
struct RateWindow {
    parts: VecDeque<(Instant, RecentActivity)>,
}

fn every(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    let allowed = Duration::from_millis(100)..=Duration::from_mins(10);
    if allowed.contains(&duration) {
        Ok(duration)
    } else {
        Err("must be from 100ms to 10m".to_owned())
    }
}

/// Draws until it is interrupted.
pub(super) fn run(arguments: &TopArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(draw(arguments))
}

async fn draw(arguments: &TopArguments) -> anyhow::Result<ExitCode> {
    let mut admin = arguments.server.admin().await?;
    let mut recovery = arguments.server.recovery().await?;
    let named = [arguments.replica.clone()].into_iter();
    let filter = v1::RecoveryEventFilter {
        replicas: named.filter(|name| !name.is_empty()).collect(),
        ..v1::RecoveryEventFilter::default()
    };
    let request = v1::WatchRecoveryRequest {
        filter: Some(filter),
        start: Some(Start::Live(true)),
    };
    let mut events = recovery
        .watch_recovery(request)
        .await
        .map_err(ServerRefusal::from)?
        .into_inner();
    let mut recent = RateWindow {
        parts: VecDeque::from([(Instant::now(), RecentActivity::default())]),
    };
    // A count over no time at all is not a rate.
    let mut ticks = interval_at(Instant::now() + arguments.interval, arguments.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut left = arguments.tables;
    loop {
        tokio::select! {
            event = events.message() => {
                let ended = || Status::unavailable("the server ended the watch");
                let response = event.and_then(|response| response.ok_or_else(ended)).map_err(ServerRefusal::from)?;
                if let (Some(event), Some((_, counts))) = (response.event, recent.parts.back_mut()) {
                    counts.add(&event);
                }
            }
            _ = ticks.tick() => {
                let lines = table(&mut admin, &recent, &arguments.replica).await.map_err(ServerRefusal::from)?;
                show(&lines)?;
                left = left.map(|left| left.saturating_sub(1));
                if left == Some(0) {
                    return Ok(ExitCode::SUCCESS);
                }
                recent.next(Instant::now());
            }
        }
    }
}

/// Redraws on a terminal; elsewhere tables follow each other.
fn show(lines: &[String]) -> io::Result<()> {
    if io::stdout().is_terminal() {
        let mut out = io::stdout().lock();
        write!(out, "{CLEAR}")?;
        out.flush()?;
    }
    lines.iter().try_for_each(|line| print_line(line))?;
    if io::stdout().is_terminal() {
        Ok(())
    } else {
        print_line("")
    }
}

async fn table(
    admin: &mut AdminClient,
    recent: &RateWindow,
    replica: &str,
) -> Result<Vec<String>, Status> {
    let replica = replica.to_owned();
    let request = v1::GetStatusRequest {
        replica: replica.clone(),
    };
    let status = admin.get_status(request).await?.into_inner();
    let request = v1::ListTargetsRequest {
        replica,
        ..v1::ListTargetsRequest::default()
    };
    let targets = admin.list_targets(request).await?.into_inner();
    let (counts, over) = recent.sum(Instant::now());
    Ok(lines(
        &status,
        &targets,
        &counts,
        over,
        Paint::on(&io::stdout()),
    ))
}

fn lines(
    status: &v1::GetStatusResponse,
    listed: &v1::ListTargetsResponse,
    counts: &RecentActivity,
    over: Duration,
    paint: Paint,
) -> Vec<String> {
    let rate = |count: u32| format!("{:.1}", f64::from(count) / over.as_secs_f64().max(0.001));
    let all = counts
        .tenants
        .values()
        .fold(CallActivity::default(), |sum, one| CallActivity {
            calls: sum.calls + one.calls,
            recovered: sum.recovered + one.recovered,
            failed: sum.failed + one.failed,
        });
    let replicas: Vec<&v1::GetStatusResponse> =
        [status].into_iter().chain(&status.others).collect();
    let names: Vec<String> = replicas.iter().map(|one| one_line(&one.replica)).collect();
    let sum =
        |of: fn(&v1::GetStatusResponse) -> u64| -> u64 { replicas.iter().map(|one| of(one)).sum() };
    let mut lines = vec![paint.bold(&format!(
        "{}  {} in flight, {} parked  {} calls/s, of which {} recovered, {} failed",
        names.join(", "),
        sum(|one| one.invocations_in_flight),
        sum(|one| one.invocations_parked),
        rate(all.calls),
        share(all.recovered, all.calls),
        share(all.failed, all.calls),
    ))];
    let is_fleet = circuits::is_fleet(listed);
    for one in &replicas {
        let whose = if is_fleet {
            format!("{}  ", one.replica)
        } else {
            String::new()
        };
        for reason in &one.reasons {
            lines.push(paint.yellow(&one_line(&format!(
                "{whose}{}: {}",
                reason.component, reason.message
            ))));
        }
    }
    lines.extend(silent(&status.silent, paint));
    lines.push(String::new());
    let headings = [
        "REPLICA",
        "TARGET",
        "CIRCUIT",
        "GATES",
        "SLOTS",
        "ATTEMPTS/S",
        "FAILED",
        "RETRIES/S",
        "P50 FIRST TOKEN",
    ];
    let left_out = usize::from(!is_fleet);
    let mut table = Table::new(&headings[left_out..]);
    for (replica, target) in circuits::of_all(listed) {
        let own = counts.of(replica, &target.id);
        let cells = vec![
            replica.to_owned(),
            target.id.clone(),
            target
                .circuit
                .as_ref()
                .map_or_else(|| "-".to_owned(), |circuit| words::circuit(circuit.state)),
            circuits::gates(&target.gates),
            target.concurrency.map_or_else(
                || "-".to_owned(),
                |slots| format!("{}/{}", slots.in_flight, slots.limit),
            ),
            rate(own.attempts),
            share(own.failed, own.attempts),
            rate(own.retries),
            target
                .latency
                .as_ref()
                .and_then(|latency| latency.p50_first_token_ms)
                .map_or_else(|| "-".to_owned(), span),
        ];
        table.row(cells.into_iter().skip(left_out).collect());
    }
    lines.extend(table.lines());
    if !counts.tenants.is_empty() {
        let mut busiest: Vec<_> = counts.tenants.iter().collect();
        busiest.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.calls));
        let mut table = Table::new(&["TENANT", "CALLS/S", "RECOVERED", "FAILED"]);
        for (tenant, own) in busiest.into_iter().take(TENANTS) {
            table.row(vec![
                tenant.clone(),
                rate(own.calls),
                share(own.recovered, own.calls),
                share(own.failed, own.calls),
            ]);
        }
        lines.push(String::new());
        lines.extend(table.lines());
    }
    lines
}

/// Returns a part of a whole in percent; `-` if there is none.
fn share(part: u32, whole: u32) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        format!("{:.0} %", 100.0 * f64::from(part) / f64::from(whole))
    }
}

// === impl RecentActivity ===

impl RecentActivity {
    fn add(&mut self, event: &v1::RecoveryEvent) {
        let Some(body) = &event.body else { return };
        let call = |counts: &mut Self, add: fn(&mut CallActivity)| {
            let own = counts.tenants.entry(event.tenant.clone()).or_default();
            own.calls += 1;
            add(own);
        };
        match body {
            Body::InvocationSucceeded(_) => call(self, |_| {}),
            Body::InvocationRecovered(_) => call(self, |own| own.recovered += 1),
            Body::InvocationFailed(_) => call(self, |own| own.failed += 1),
            Body::AttemptStarted(_) => self.target(event).attempts += 1,
            Body::AttemptFailed(_) => self.target(event).failed += 1,
            Body::RecoveryAttempted(_) => self.target(event).retries += 1,
            _ => {}
        }
    }

    fn target(&mut self, event: &v1::RecoveryEvent) -> &mut TargetActivity {
        let place = (event.replica.clone(), event.target.clone());
        self.targets.entry(place).or_default()
    }

    /// Returns the activity of a target at a replica; without a fleet, events name none.
    fn of(&self, replica: &str, target: &str) -> TargetActivity {
        let at = |replica: &str| self.targets.get(&(replica.to_owned(), target.to_owned()));
        at(replica).or_else(|| at("")).copied().unwrap_or_default()
    }
}

// === impl RateWindow ===

impl RateWindow {
    /// Starts the next window of counts, and drops what is too old.
    fn next(&mut self, now: Instant) {
        self.parts.push_back((now, RecentActivity::default()));
        // The first of the rest started before the window, or with it.
        while self
            .parts
            .get(1)
            .is_some_and(|(began, _)| *began + WINDOW <= now)
        {
            self.parts.pop_front();
        }
    }

    /// Returns the activity, and the time over which it happened.
    fn sum(&self, now: Instant) -> (RecentActivity, Duration) {
        let mut sum = RecentActivity::default();
        for (_, part) in &self.parts {
            for (target, own) in &part.targets {
                let all = sum.targets.entry(target.clone()).or_default();
                all.attempts += own.attempts;
                all.failed += own.failed;
                all.retries += own.retries;
            }
            for (tenant, own) in &part.tenants {
                let all = sum.tenants.entry(tenant.clone()).or_default();
                all.calls += own.calls;
                all.recovered += own.recovered;
                all.failed += own.failed;
            }
        }
        let over = self.parts.front().map_or(Duration::ZERO, |(began, _)| {
            now.saturating_duration_since(*began)
        });
        (sum, over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(target: &str, tenant: &str, body: Body) -> v1::RecoveryEvent {
        v1::RecoveryEvent {
            target: target.to_owned(),
            tenant: tenant.to_owned(),
            body: Some(body),
            ..v1::RecoveryEvent::default()
        }
    }

    #[test]
    fn rates_are_those_of_the_window_and_shares_of_all_that_ended() {
        let began = Instant::now();
        let mut recent = RateWindow {
            parts: VecDeque::from([(began, RecentActivity::default())]),
        };
        let happen = |recent: &mut RateWindow, body: Body| {
            recent
                .parts
                .back_mut()
                .unwrap()
                .1
                .add(&event("gpt", "acme", body));
        };
        for _ in 0..3 {
            happen(
                &mut recent,
                Body::AttemptStarted(v1::AttemptStartedEvent::default()),
            );
        }
        happen(
            &mut recent,
            Body::AttemptFailed(v1::AttemptFailedEvent::default()),
        );
        happen(
            &mut recent,
            Body::RecoveryAttempted(v1::RecoveryAttemptedEvent::default()),
        );
        happen(
            &mut recent,
            Body::InvocationRecovered(v1::InvocationRecoveredEvent::default()),
        );
        happen(
            &mut recent,
            Body::InvocationSucceeded(v1::InvocationSucceededEvent::default()),
        );
        let (counts, over) = recent.sum(began + Duration::from_secs(2));
        let status = v1::GetStatusResponse {
            replica: "one".to_owned(),
            ..v1::GetStatusResponse::default()
        };
        let target = v1::Target {
            id: "gpt".to_owned(),
            ..v1::Target::default()
        };
        let listed = v1::ListTargetsResponse {
            targets: vec![target],
            ..v1::ListTargetsResponse::default()
        };
        assert_eq!(
            lines(&status, &listed, &counts, over, Paint::none()),
            [
                "one  0 in flight, 0 parked  1.0 calls/s, of which 50 % recovered, 0 % failed",
                "",
                "TARGET  CIRCUIT  GATES  SLOTS  ATTEMPTS/S  FAILED  RETRIES/S  P50 FIRST TOKEN",
                "gpt     -        open   -      1.5         33 %    0.5        -",
                "",
                "TENANT  CALLS/S  RECOVERED  FAILED",
                "acme    1.0      50 %       0 %",
            ]
        );
        for second in 1..=30 {
            recent.next(began + Duration::from_secs(second));
        }
        let (counts, over) = recent.sum(began + Duration::from_secs(31));
        assert_eq!(
            counts,
            RecentActivity::default(),
            "what is older than the window is forgotten"
        );
        assert!(
            over >= WINDOW && over <= WINDOW + Duration::from_secs(2),
            "{over:?}"
        );
    }

    #[test]
    fn the_interval_has_bounds() {
        assert_eq!(every("2s"), Ok(Duration::from_secs(2)));
        assert!(every("1ms").is_err() && every("1h").is_err() && every("soon").is_err());
    }
}
