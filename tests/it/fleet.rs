//! Replicas that act as one: three `relight serve` on one `PostgreSQL` or one Valkey.

mod circuits;
mod counted;
mod fan_in;
mod five;
mod gates;
mod peers;
mod restored;
mod shares;
mod side_by_side;
mod store;
mod store_away;
mod under_load;
mod valkey;

use std::time::Duration;

use relight::internals::grpc::v1::{
    CircuitForce, CircuitState, Failure, ForceCircuitRequest, GateKind, GetStatusRequest,
    GetStatusResponse, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse, ListTargetsRequest,
    ResetCircuitRequest, StoreKind, Target, invoke_with_recovery_response::Outcome,
};

use tokio::time::Instant;

use crate::support::{
    cluster::Cluster,
    fleet_server::FleetServer,
    process::Process,
    relight::asking,
    room::room,
    targets::one_target,
    upstream::{Reply, Request, Upstream},
};

/// Time within which every replica knows. It ends a hang: `counted` measures half a second (F3).
const KNOWN: Duration = Duration::from_secs(15);

/// Replicas on one database, and the provider that they call.
struct Replicas {
    cluster: FleetServer,
    upstream: Upstream,
    config: String,
    all: Vec<Process>,
}

// === impl Replicas ===

impl Replicas {
    /// Three replicas that know each other, with further settings; `None` where there is no server.
    async fn three(settings: &str) -> Option<Self> {
        Some(Self::on(FleetServer::postgres()?, settings).await)
    }

    /// Three replicas that know each other by this store.
    async fn on(cluster: FleetServer, settings: &str) -> Self {
        let url = cluster.url();
        Self::at(cluster, &url, settings).await
    }

    /// Three replicas that know each other by this store, which they reach at this URL.
    async fn at(cluster: FleetServer, url: &str, settings: &str) -> Self {
        let upstream = Upstream::start().await;
        let targets = format!("{}{settings}\n", one_target(&upstream));
        Self::of(cluster, url, upstream, &targets).await
    }

    /// Three replicas with these targets.
    async fn of(cluster: FleetServer, url: &str, upstream: Upstream, targets: &str) -> Self {
        Self::many(3, cluster, url, upstream, targets).await
    }

    /// So many replicas with these targets.
    async fn many(
        count: u64,
        cluster: FleetServer,
        url: &str,
        upstream: Upstream,
        targets: &str,
    ) -> Self {
        let mut replicas = Self::alone(cluster, url, upstream, targets);
        for _ in 0..count {
            replicas.start_another().await;
        }
        for replica in &replicas.all {
            known_to_live(replica, count).await;
        }
        replicas
    }

    /// A store and a provider without a replica yet; `None` where there is no server.
    fn none(settings: &str) -> Option<impl Future<Output = Self>> {
        let cluster = FleetServer::postgres()?;
        Some(async move {
            let url = cluster.url();
            let upstream = Upstream::start().await;
            let targets = format!("{}{settings}\n", one_target(&upstream));
            Self::alone(cluster, &url, upstream, &targets)
        })
    }

    fn alone(cluster: FleetServer, url: &str, upstream: Upstream, targets: &str) -> Self {
        let config =
            format!("{targets}fleet: {{ store: \"{url}\" }}\njournal: {{ store: memory }}\n");
        Self {
            cluster,
            upstream,
            config,
            all: Vec::new(),
        }
    }

    async fn start_another(&mut self) -> &Process {
        let process = Process::start(&self.config).await;
        self.all.push(process);
        self.all.last().unwrap()
    }

    /// Waits until all of them, or all but the first ones, show this of their target.
    async fn until_all(&self, skipped: usize, what: &str, shows: impl Fn(&Target) -> bool) {
        for replica in self.all.iter().skip(skipped) {
            until(what, async || shows(&target(replica).await)).await;
        }
    }

    fn called(&self) -> usize {
        self.upstream.requests().len()
    }
}

/// Waits until a replica logged that so many live.
async fn known_to_live(replica: &Process, count: u64) {
    replica
        .log_until(|lines| {
            lines
                .iter()
                .filter_map(|line| line["fields"]["replicas"].as_u64())
                .next_back()
                == Some(count)
        })
        .await;
}

async fn until(what: &str, is_so: impl AsyncFnMut() -> bool) {
    until_in(KNOWN, what, is_so).await;
}

async fn until_in(time: Duration, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < time, "{what}: not within {time:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn target(replica: &Process) -> Target {
    let request = ListTargetsRequest::default();
    let listed = replica.admin().list_targets(request).await.unwrap();
    listed.into_inner().targets.remove(0)
}

fn state_of(target: &Target) -> CircuitState {
    target.circuit.as_ref().unwrap().state()
}

fn is_closed_gate(target: &Target, kind: GateKind) -> bool {
    let mut gates = target.gates.iter();
    gates.any(|gate| gate.kind() == kind && gate.closed)
}

async fn status(replica: &Process) -> GetStatusResponse {
    let request = GetStatusRequest::default();
    replica
        .admin()
        .get_status(request)
        .await
        .unwrap()
        .into_inner()
}

async fn call(replica: &Process) -> InvokeWithRecoveryResponse {
    let request = InvokeWithRecoveryRequest {
        invocation: Some(asking("Hello")),
    };
    let called = replica.recovery().invoke_with_recovery(request).await;
    called.unwrap().into_inner()
}

async fn failure(replica: &Process) -> Failure {
    match call(replica).await.outcome {
        Some(Outcome::Failure(failure)) => failure,
        other => panic!("no failure but {other:?}"),
    }
}

async fn is_answered(replica: &Process) -> bool {
    matches!(call(replica).await.outcome, Some(Outcome::Completion(_)))
}

async fn force(replica: &Process, force: CircuitForce) {
    let request = ForceCircuitRequest {
        target: "main".to_owned(),
        force: force.into(),
        reason: "maintenance at noon".to_owned(),
    };
    replica.admin().force_circuit(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_operator_forces_at_one_holds_at_all_and_at_one_that_starts_later() {
    let _room = room().await;
    let Some(mut replicas) = Replicas::three("").await else {
        return;
    };
    force(&replicas.all[1], CircuitForce::Open).await;
    let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedOpen;
    replicas.until_all(0, "forced open", is_forced).await;
    let late = replicas.start_another().await;
    assert_eq!(state_of(&target(late).await), CircuitState::ForcedOpen);
    let words = status(late).await.reasons.remove(0).message;
    assert!(words.contains("maintenance at noon"), "{words}");
    let refused = failure(late).await;
    assert!(
        refused.message.contains("maintenance at noon"),
        "{refused:?}"
    );
    assert_eq!(replicas.called(), 0, "nobody called the target");
    let reset = ResetCircuitRequest {
        target: "main".to_owned(),
    };
    replicas.all[2].admin().reset_circuit(reset).await.unwrap();
    let is_closed = |target: &Target| state_of(target) == CircuitState::Closed;
    replicas.until_all(0, "reset", is_closed).await;
    assert!(is_answered(&replicas.all[3]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_journals_database_is_the_store_unless_another_one_is_named() {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let upstream = Upstream::start().await;
    for (settings, expected) in [
        (format!("journal: {{ store: \"{}\" }}", cluster.url()), 2),
        (
            format!(
                "journal: {{ store: \"{}\" }}\nfleet: {{ store: none }}",
                cluster.url()
            ),
            1,
        ),
        ("journal: { store: memory }".to_owned(), 1),
    ] {
        let config = format!("{}{settings}\n", one_target(&upstream));
        let replica = Process::start(&config).await;
        let stores = status(&replica).await.stores;
        assert_eq!(stores.len(), expected, "{settings}: {stores:?}");
        if let Some(store) = stores.get(1) {
            assert_eq!(store.kind(), StoreKind::Fleet);
            assert_eq!(store.engine, "postgres");
            assert!(store.reachable);
        }
    }
}
