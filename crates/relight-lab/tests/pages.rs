//! Tables of the documentation that are made from what the code decides by.

use std::{fs, path::Path};

use relight_policy::domain::{
    circuit::GateKind,
    failure::{CircuitEffect, FailureClass},
};

const BEGIN: &str = "<!-- classes: begin -->\n";
const END: &str = "<!-- classes: end -->";

#[test]
fn the_table_of_how_recovery_decides_has_the_row_of_every_class() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-recovery-decides.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(BEGIN).unwrap();
    let (written, _) = rest.split_once(END).unwrap();
    let made = table();
    assert!(written == made, "the table of the page is to be:\n{made}");
}

fn table() -> String {
    let head = "| Class | A further attempt there | Another target | For the target's circuit | Gate | The caller gets | The user reads |\n\
                |---|---|---|---|---|---|---|\n";
    let rows = FailureClass::ALL.map(|class| {
        let row = class.row();
        let name: &str = class.into();
        let (status, code) = row.http;
        format!(
            "| `{name}` | {} | {} | {} | {} | {status} `{code}` | {} |\n",
            yes(row.retry),
            yes(row.fallback),
            circuit(row.circuit),
            row.gate.map_or("", gate),
            row.user,
        )
    });
    format!("{head}{}", rows.concat())
}

const fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

const fn circuit(effect: CircuitEffect) -> &'static str {
    match effect {
        CircuitEffect::Failure => "a failure",
        CircuitEffect::SlowFailure => "a slow failure",
        CircuitEffect::Limit => "a limit, no failure",
        CircuitEffect::Alive => "a sign of life",
        CircuitEffect::Cancelled | CircuitEffect::Neutral => "nothing",
    }
}

const fn gate(gate: GateKind) -> &'static str {
    match gate {
        GateKind::Rate => "rate",
        GateKind::Credential => "credential",
        GateKind::Configuration => "configuration",
    }
}
