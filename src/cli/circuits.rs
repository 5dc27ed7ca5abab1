//! `relight circuits`: lists the circuits of all targets, and forces or releases one.

use std::{io, process::ExitCode};

use crate::grpc::v1;
use clap::{Args, Subcommand, ValueEnum};

use super::{
    Output,
    client::ServerArguments,
    json::json,
    refusal::ServerRefusal,
    status::silent,
    terminal::{Paint, Table, clock_time, print_line, span},
    words,
};

const EXAMPLES: &str = "\
Examples:
  relight circuits                                        every target: circuit, gates, budget, latency
  relight circuits reset gpt                              forget what the circuit knows, and close it
  relight circuits force gpt open --reason \"maintenance\"  send everything elsewhere
  relight circuits force gpt auto                         let it judge by itself again";

/// Operation on circuits; without a command, they are listed.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct CircuitsArguments {
    #[command(subcommand)]
    command: Option<CircuitsCommand>,
    /// Lists the targets of this replica of a fleet only; what is forced or reset holds at all.
    #[arg(
        long,
        value_name = "NAME",
        global = true,
        default_value = "",
        hide_default_value = true
    )]
    replica: String,
    /// Output format: `text` (or `table`), or `json`.
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

#[derive(Debug, Subcommand)]
enum CircuitsCommand {
    /// List targets with their circuits.
    List {
        /// Only targets of this route.
        #[arg(
            long,
            value_name = "NAME",
            default_value = "",
            hide_default_value = true
        )]
        route: String,
    },
    /// Forget what a circuit knows, and close it.
    Reset {
        /// The target.
        target: String,
    },
    /// Hold a circuit open or closed, or let it judge by itself again.
    Force {
        /// The target.
        target: String,
        /// The state to force.
        force: Force,
        /// Reason, for the record.
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "",
            hide_default_value = true
        )]
        reason: String,
    },
}

/// Action of an operator on a circuit.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Force {
    /// Every call is refused.
    Open,
    /// Every call passes.
    Closed,
    /// It judges by itself.
    Auto,
}

/// Does it, and shows what is then.
pub(super) fn run(arguments: &CircuitsArguments) -> anyhow::Result<ExitCode> {
    super::client_runtime()?.block_on(steer(arguments))
}

async fn steer(arguments: &CircuitsArguments) -> anyhow::Result<ExitCode> {
    let mut admin = arguments.server.admin().await?;
    let list = CircuitsCommand::List {
        route: String::new(),
    };
    match arguments.command.as_ref().unwrap_or(&list) {
        CircuitsCommand::List { route } => {
            let request = v1::ListTargetsRequest {
                route: route.clone(),
                replica: arguments.replica.clone(),
                ..v1::ListTargetsRequest::default()
            };
            let listed = admin
                .list_targets(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            match arguments.output {
                Output::Json => print_line(&serde_json::to_string_pretty(&json(
                    "ListTargetsResponse",
                    &listed,
                )?)?)?,
                Output::Text => show(&listed)?,
            }
        }
        CircuitsCommand::Reset { target } => {
            let request = v1::ResetCircuitRequest {
                target: target.clone(),
            };
            let circuit = admin
                .reset_circuit(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner()
                .circuit;
            print_circuit(arguments.output, target, &circuit.unwrap_or_default())?;
        }
        CircuitsCommand::Force {
            target,
            force,
            reason,
        } => {
            let force = match force {
                Force::Open => v1::CircuitForce::Open,
                Force::Closed => v1::CircuitForce::Closed,
                Force::Auto => v1::CircuitForce::Auto,
            };
            let request = v1::ForceCircuitRequest {
                target: target.clone(),
                force: force.into(),
                reason: reason.clone(),
            };
            let circuit = admin
                .force_circuit(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner()
                .circuit;
            print_circuit(arguments.output, target, &circuit.unwrap_or_default())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print_circuit(output: Output, target: &str, circuit: &v1::Circuit) -> anyhow::Result<()> {
    match output {
        Output::Json => print_line(&serde_json::to_string_pretty(&json("Circuit", circuit)?)?)?,
        Output::Text => print_line(&format!(
            "The circuit of {target} is {}.",
            words::circuit(circuit.state)
        ))?,
    }
    Ok(())
}

/// Returns the targets of all replicas, each with the name of its replica.
pub(super) fn of_all(listed: &v1::ListTargetsResponse) -> Vec<(&str, &v1::Target)> {
    let own = [(listed.replica.as_str(), &listed.targets)].into_iter();
    let others = listed.others.iter();
    own.chain(others.map(|other| (other.replica.as_str(), &other.targets)))
        .flat_map(|(replica, targets)| targets.iter().map(move |target| (replica, target)))
        .collect()
}

/// Returns whether there are other replicas, so that each line names its own.
pub(super) fn is_fleet(listed: &v1::ListTargetsResponse) -> bool {
    !listed.others.is_empty() || !listed.silent.is_empty()
}

fn show(listed: &v1::ListTargetsResponse) -> io::Result<()> {
    let paint = Paint::on(&io::stdout());
    let targets = of_all(listed);
    let lines = table(&targets, is_fleet(listed)).lines();
    for (index, line) in lines.into_iter().enumerate() {
        let state = index
            .checked_sub(1)
            .and_then(|row| targets.get(row)?.1.circuit.as_ref())
            .map(|circuit| circuit.state);
        let troubled = [v1::CircuitState::Open, v1::CircuitState::ForcedOpen]
            .map(|state| Some(i32::from(state)));
        print_line(&match state {
            None => paint.bold(&line),
            state if troubled.contains(&state) => paint.red(&line),
            Some(_) => line,
        })?;
    }
    let silent = silent(&listed.silent, paint);
    silent.iter().try_for_each(|line| print_line(line))
}

fn table(targets: &[(&str, &v1::Target)], is_fleet: bool) -> Table {
    let headings = [
        "REPLICA",
        "TARGET",
        "CIRCUIT",
        "SINCE",
        "EVIDENCE",
        "RETRY IN",
        "GATES",
        "BUDGET",
        "SLOTS",
        "P50 FIRST TOKEN",
    ];
    let left_out = usize::from(!is_fleet);
    let mut table = Table::new(&headings[left_out..]);
    for (replica, target) in targets {
        let circuit = target.circuit.clone().unwrap_or_default();
        let cells = vec![
            (*replica).to_owned(),
            target.id.clone(),
            state(&circuit),
            circuit
                .since
                .as_ref()
                .map_or_else(|| "-".to_owned(), clock_time),
            circuit
                .evidence
                .as_ref()
                .map_or_else(|| "-".to_owned(), evidence),
            retry_in(&circuit),
            gates(&target.gates),
            target.budget.as_ref().map_or_else(
                || "-".to_owned(),
                |budget| format!("{:.0}/{:.0}", budget.level.floor(), budget.capacity),
            ),
            target.concurrency.map_or_else(
                || "-".to_owned(),
                |slots| format!("{}/{}", slots.in_flight, slots.limit),
            ),
            target
                .latency
                .as_ref()
                .and_then(|latency| latency.p50_first_token_ms)
                .map_or_else(|| "-".to_owned(), span),
        ];
        table.row(cells.into_iter().skip(left_out).collect());
    }
    table
}

/// Returns the state, and while it is not closed the failure that opened it.
fn state(circuit: &v1::Circuit) -> String {
    let state = words::circuit(circuit.state);
    match circuit.state() {
        _ if circuit.degraded => format!("{state}, degraded"),
        v1::CircuitState::Open | v1::CircuitState::HalfOpen | v1::CircuitState::Recovering
            if circuit.cause != 0 =>
        {
            format!("{state} ({})", words::class(circuit.cause))
        }
        _ => state,
    }
}

/// Returns the time until it lets a call through again: a circuit that is open and due waits for a
/// call to probe with.
fn retry_in(circuit: &v1::Circuit) -> String {
    match circuit.retry_in_ms {
        Some(ms) => span(ms),
        None if circuit.state() == v1::CircuitState::Open => "now".to_owned(),
        None => "-".to_owned(),
    }
}

fn evidence(evidence: &v1::CircuitEvidence) -> String {
    if evidence.committed == 0 && evidence.pending == 0 {
        return "no calls".to_owned();
    }
    let mut text = format!("{}/{} failed", evidence.failures, evidence.committed);
    for (count, what) in [
        (evidence.consecutive_failures, "in a row"),
        (evidence.slow, "slow"),
        (evidence.pending, "pending"),
    ] {
        if count > 0 {
            text = format!("{text}, {count} {what}");
        }
    }
    text
}

/// Returns the closed gates, and the time for which they are closed.
pub(super) fn gates(gates: &[v1::Gate]) -> String {
    let closed = gates.iter().filter(|gate| gate.closed).map(|gate| {
        let cause = words::class(gate.cause);
        let key = Some(&gate.key).filter(|key| !key.is_empty());
        let of_key = key.map(|key| format!(" of {key}")).unwrap_or_default();
        let name = format!("{}{of_key}", words::gate(gate.kind));
        match gate.reopens_in_ms {
            Some(ms) => format!("{name} closed for {} ({cause})", span(ms)),
            None => format!("{name} closed ({cause})"),
        }
    });
    let closed: Vec<String> = closed.collect();
    if closed.is_empty() {
        "open".to_owned()
    } else {
        closed.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_in_trouble_shows_its_evidence_its_gates_and_when_it_comes_back() {
        let circuit = v1::Circuit {
            state: v1::CircuitState::Open.into(),
            retry_in_ms: Some(2400),
            cause: v1::FailureClass::Timeout.into(),
            evidence: Some(v1::CircuitEvidence {
                committed: 9,
                failures: 8,
                consecutive_failures: 8,
                ..v1::CircuitEvidence::default()
            }),
            ..v1::Circuit::default()
        };
        let gate = v1::Gate {
            kind: v1::GateKind::Credential.into(),
            closed: true,
            reopens_in_ms: Some(60_000),
            cause: v1::FailureClass::QuotaExceeded.into(),
            key: String::new(),
        };
        let target = v1::Target {
            id: "gpt".to_owned(),
            circuit: Some(circuit),
            gates: vec![gate],
            budget: Some(v1::RetryBudget {
                level: 480.0,
                capacity: 500.0,
            }),
            ..v1::Target::default()
        };
        let lines = table(&[("one", &target)], false).lines();
        let cells: Vec<&str> = lines[1]
            .split("  ")
            .filter(|cell| !cell.is_empty())
            .map(str::trim)
            .collect();
        let gates = "credential closed for 60 s (quota_exceeded)";
        assert_eq!(
            cells,
            [
                "gpt",
                "open (timeout)",
                "-",
                "8/9 failed, 8 in a row",
                "2.4 s",
                gates,
                "480/500",
                "-",
                "-"
            ]
        );
    }
}
