//! What a call costs in figures that no busy machine changes: allocations, bytes allocated, system
//! calls, and instructions.
//!
//! The server runs in a process of its own (this binary once more, as the ignored test
//! `server::serve`), which counts its allocations; upstream and clients run here.
//! `tests/fixtures/cost.tsv` has what each kind of call may cost; one that costs more than a tenth
//! above that fails. System calls are counted by `strace` where it is installed; their number
//! varies with which thread wakes which, so that half as many again are let pass. Instructions are
//! those of this build, which is not optimised; they are counted for some kinds of calls, by
//! `callgrind` if it is installed, and on `x86_64` only.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod callgrind;
mod calls;
mod server;
mod upstream;

use std::{collections::BTreeMap, fmt::Write as _, net::SocketAddr};

use futures_util::future::join_all;
use tokio::process::Command;

use self::{
    calls::{Caller, KINDS, Kind},
    server::Server,
};

const LIMITS: &str = include_str!("../fixtures/cost.tsv");

/// Calls of each caller before the count, so that connections, buffers and tables are there, and
/// that the target is known well enough to be asked for documents.
const WARM_UP: u32 = 120;

/// Counted calls of each caller.
const CALLS: u32 = 20;

/// The kind of call that several callers make at once, too: the database commits for all of them
/// together.
const GROUPED: &str = "grpc unary, sqlite, request_id";

/// So many callers do.
const CALLERS: u32 = 16;

/// What one call costs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    allocations: f64,
    kibibytes: f64,
    system_calls: Option<f64>,
    /// In thousands.
    instructions: Option<f64>,
}

/// The limits by kind: allocations, KiB allocated, system calls, thousands of instructions.
fn limits() -> BTreeMap<&'static str, Cost> {
    let lines = LIMITS
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let of = |line: &'static str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let number = |index: usize| fields[index].parse::<f64>().unwrap();
        (
            fields[0],
            Cost {
                allocations: number(1),
                kibibytes: number(2),
                system_calls: Some(number(3)),
                instructions: fields.get(4).map(|_| number(4)),
            },
        )
    };
    lines.map(of).collect()
}

#[tokio::test]
async fn no_kind_of_call_costs_a_tenth_more_than_its_limit() {
    let upstream = upstream::start().await;
    let limits = limits();
    let mut table = format!(
        "{:<44}{:>12}{:>10}{:>14}{:>14}\n",
        "kind", "allocations", "KiB", "system calls", "instructions"
    );
    let mut dear = Vec::new();
    let alone = KINDS
        .iter()
        .map(|(name, store, kind)| ((*name).to_owned(), *store, *kind, 1));
    let grouped = KINDS.iter().filter(|(name, ..)| *name == GROUPED);
    let grouped = grouped
        .map(|(name, store, kind)| (format!("{name}, {CALLERS} callers"), *store, *kind, CALLERS));
    for (name, store, kind, callers) in alone.chain(grouped) {
        let limit = limits[&*name];
        let server = Server::start(upstream.address(), store).await;
        let mut connected: Vec<Caller> = (0..callers)
            .map(|_| Caller::new(&server.interfaces))
            .collect();
        call(&mut connected, kind, WARM_UP).await;
        let before = server.allocated().await;
        call(&mut connected, kind, CALLS).await;
        let after = server.allocated().await;
        let each = |before: u64, after: u64| {
            f64::from(u32::try_from(after - before).unwrap()) / f64::from(CALLS * callers)
        };
        let system_calls = match server.trace().await {
            Some(trace) => {
                call(&mut connected, kind, CALLS).await;
                Some(each(0, trace.finish().await))
            }
            None => None,
        };
        let cost = Cost {
            allocations: each(before.0, after.0),
            kibibytes: each(before.1 >> 10, after.1 >> 10),
            system_calls,
            instructions: match limit.instructions {
                Some(_) => instructions(upstream.address(), store, kind).await,
                None => None,
            },
        };
        let counted = |what: Option<f64>| {
            what.map_or_else(|| "not counted".to_owned(), |count| format!("{count:.1}"))
        };
        writeln!(
            table,
            "{name:<44}{:>12.0}{:>10.0}{:>14}{:>14}",
            cost.allocations,
            cost.kibibytes,
            counted(cost.system_calls),
            counted(cost.instructions),
        )
        .unwrap();
        for (what, cost, limit, margin) in [
            (
                "allocations",
                Some(cost.allocations),
                Some(limit.allocations),
                1.1,
            ),
            ("KiB", Some(cost.kibibytes), Some(limit.kibibytes), 1.1),
            ("system calls", cost.system_calls, limit.system_calls, 1.5),
            (
                "thousand instructions",
                cost.instructions,
                limit.instructions,
                1.1,
            ),
        ] {
            if let (Some(cost), Some(limit)) = (cost, limit)
                && cost > limit * margin
            {
                dear.push(format!("{name}: {cost:.1} {what}, and {limit} are allowed"));
            }
        }
    }
    println!("{table}");
    assert!(dear.is_empty(), "{dear:#?}\n{table}");
}

/// Returns the instructions that one call takes, in thousands; `None` if nothing counts them.
async fn instructions(upstream: SocketAddr, store: &str, kind: Kind) -> Option<f64> {
    let valgrind = Command::new("valgrind").arg("--version").output().await;
    if !cfg!(target_arch = "x86_64") || valgrind.is_err() {
        return None;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    let server = Server::start_counted(upstream, store, file.path()).await;
    let mut callers = [Caller::new(&server.interfaces)];
    call(&mut callers, kind, WARM_UP).await;
    server.count_instructions(true).await;
    call(&mut callers, kind, CALLS).await;
    server.count_instructions(false).await;
    server.end().await;
    let counted = callgrind::counted(file.path()) / 1000;
    Some(f64::from(u32::try_from(counted).unwrap()) / f64::from(CALLS))
}

/// Each caller makes so many calls, one after the other, and all callers at once.
async fn call(callers: &mut [Caller], kind: Kind, calls: u32) {
    let calling = callers.iter_mut().map(async |caller| {
        for _ in 0..calls {
            caller.call(kind).await;
        }
    });
    join_all(calling).await;
}
