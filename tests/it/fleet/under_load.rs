//! Faults of the store, of a replica and of a provider in any order, under a steady load (F6).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::*;
use crate::support::{slow_link::SlowLink, targets::two_targets};

/// Callers of each replica.
const CALLERS: usize = 2;
/// Time between two calls of a caller.
const PAUSE: Duration = Duration::from_millis(25);
/// Time that no call takes which waits for no store: one that does waits for a second.
const SLOW: Duration = Duration::from_millis(500);
/// One of so many calls may take longer, since this host runs other tests, too; if calls waited for
/// the store, all during a fault would.
const ONE_OF: usize = 4;
/// Answered calls that are a load.
const ENOUGH: usize = 50;
/// Time for which a fault lasts.
const LASTS: Duration = Duration::from_secs(3);

/// A call that ended.
#[derive(Debug)]
struct EndedCall {
    replica: usize,
    failure: Option<String>,
    took: Duration,
}

/// Callers who call all replicas until it is over.
struct SteadyLoad {
    callers: JoinSet<Vec<EndedCall>>,
    count: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

// === impl SteadyLoad ===

impl SteadyLoad {
    fn on(replicas: &Replicas) -> Self {
        let is_over = Arc::<AtomicBool>::default();
        let count = Arc::<AtomicUsize>::default();
        let mut callers = JoinSet::new();
        for (replica, process) in replicas.all.iter().enumerate() {
            for _ in 0..CALLERS {
                let mut client = process.recovery();
                let is_over = Arc::clone(&is_over);
                let count = Arc::clone(&count);
                callers.spawn(async move {
                    let mut ended = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let began = Instant::now();
                        let request = InvokeWithRecoveryRequest {
                            invocation: Some(asking("Hello")),
                        };
                        let failure = match client.invoke_with_recovery(request).await {
                            Err(status) => Some(status.to_string()),
                            Ok(response) => match response.into_inner().outcome {
                                Some(Outcome::Completion(_)) => None,
                                other => Some(format!("{other:?}")),
                            },
                        };
                        let took = began.elapsed();
                        count.fetch_add(usize::from(failure.is_none()), Ordering::Relaxed);
                        ended.push(EndedCall {
                            replica,
                            failure,
                            took,
                        });
                        tokio::time::sleep(PAUSE).await;
                    }
                    ended
                });
            }
        }
        Self {
            callers,
            count,
            is_over,
        }
    }

    /// Ends it once there were enough calls.
    async fn end(self) -> Vec<EndedCall> {
        while self.count.load(Ordering::Relaxed) < ENOUGH {
            tokio::time::sleep(PAUSE).await;
        }
        self.is_over.store(true, Ordering::Relaxed);
        self.callers
            .join_all()
            .await
            .into_iter()
            .flatten()
            .collect()
    }
}

/// No call failed, and calls did not take the time of those that wait for a store.
fn assert_unharmed(ended: &[EndedCall], what: &str) {
    assert_answered(ended, what);
    let slow = ended.iter().filter(|it| it.took > SLOW).count();
    assert!(
        slow * ONE_OF <= ended.len(),
        "{what}: {slow} of {} are slow",
        ended.len()
    );
}

fn assert_answered(ended: &[EndedCall], what: &str) {
    let failed: Vec<_> = ended.iter().filter(|it| it.failure.is_some()).collect();
    assert!(
        failed.is_empty(),
        "{what}: {} of {} failed: {:?}",
        failed.len(),
        ended.len(),
        failed[0]
    );
    assert!(ended.len() > 20, "{what}: no load: {} calls", ended.len());
}

/// A fault of a store, until it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoreFault {
    Frozen,
    Stopped,
    /// It responds to nothing for a while.
    Paused,
    /// It lost everything.
    Emptied,
    /// It takes no records any more.
    Full,
    /// Each direction takes 300 ms.
    Slow,
}

async fn befall(server: &FleetServer, link: &SlowLink, fault: StoreFault) {
    match (fault, server) {
        (StoreFault::Frozen, _) => {
            server.freeze();
            tokio::time::sleep(LASTS).await;
            server.thaw();
        }
        (StoreFault::Stopped, _) => {
            server.stop();
            tokio::time::sleep(LASTS).await;
            server.start_again();
        }
        (StoreFault::Slow, _) => {
            link.set_delay(Duration::from_millis(300));
            tokio::time::sleep(LASTS).await;
            link.set_delay(Duration::ZERO);
        }
        (StoreFault::Paused, FleetServer::Valkey(valkey)) => {
            let pause = format!("CLIENT PAUSE {} ALL", LASTS.as_millis());
            assert_eq!(valkey.ask(&pause).as_deref(), Some("+OK"));
            tokio::time::sleep(LASTS).await;
        }
        (StoreFault::Emptied, FleetServer::Valkey(valkey)) => {
            assert_eq!(valkey.ask("FLUSHALL").as_deref(), Some("+OK"));
            tokio::time::sleep(LASTS).await;
        }
        (StoreFault::Full, FleetServer::Valkey(valkey)) => {
            let limit = |bytes: u32| valkey.ask(&format!("CONFIG SET maxmemory {bytes}"));
            assert_eq!(limit(1).as_deref(), Some("+OK"));
            tokio::time::sleep(LASTS).await;
            assert_eq!(limit(0).as_deref(), Some("+OK"));
        }
        (StoreFault::Paused, FleetServer::Postgres(cluster)) => {
            let lock =
                "BEGIN; LOCK TABLE relight_fleet, relight_fleet_lease; SELECT pg_sleep(3); COMMIT";
            execute(cluster, &[lock]).await;
        }
        (StoreFault::Emptied, FleetServer::Postgres(cluster)) => {
            execute(cluster, &["DROP TABLE relight_fleet, relight_fleet_lease"]).await;
            tokio::time::sleep(LASTS).await;
        }
        (StoreFault::Full, FleetServer::Postgres(cluster)) => {
            let only_read = |is_on: bool| {
                format!("ALTER DATABASE postgres SET default_transaction_read_only = {is_on}")
            };
            let allow = "SET default_transaction_read_only = off";
            let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()";
            execute(cluster, &[&only_read(true), cut]).await;
            tokio::time::sleep(LASTS).await;
            execute(cluster, &[allow, &only_read(false), cut]).await;
        }
    }
}

async fn execute(cluster: &Cluster, statements: &[&str]) {
    let mut connection = PgConnection::connect(cluster.url()).await.unwrap();
    for sql in statements {
        let sql = sqlx::AssertSqlSafe((*sql).to_owned());
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_fault_of_the_store_costs_a_call_or_its_time_and_all_know_again_when_it_is_over() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let link = SlowLink::to(server.port()).await;
        let url = server.url_through(link.port);
        let replicas = Replicas::at(server, &url, "").await;
        for fault in [
            StoreFault::Frozen,
            StoreFault::Stopped,
            StoreFault::Paused,
            StoreFault::Emptied,
            StoreFault::Full,
            StoreFault::Slow,
        ] {
            let what = format!("{engine}, {fault:?}");
            let load = SteadyLoad::on(&replicas);
            befall(&replicas.cluster, &link, fault).await;
            until_reached(&replicas).await;
            assert_unharmed(&load.end().await, &what);
            // What is said now holds everywhere, and so does its end.
            force(&replicas.all[0], CircuitForce::Closed).await;
            let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedClosed;
            replicas.until_all(0, &what, is_forced).await;
            let reset = ResetCircuitRequest {
                target: "main".to_owned(),
            };
            replicas.all[1].admin().reset_circuit(reset).await.unwrap();
            replicas
                .until_all(0, &what, |target| !is_forced(target))
                .await;
        }
    }
}

/// Waits until every replica that runs reaches the store.
async fn until_reached(replicas: &Replicas) {
    for replica in &replicas.all {
        until("the store", async || {
            status(replica).await.stores.iter().all(|it| it.reachable)
        })
        .await;
    }
}

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kill {
    Store,
    Replica,
    Provider,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_a_replica_and_a_provider_may_die_in_any_order_without_a_failed_call() {
    use Kill::{Provider, Replica, Store};
    let _room = room().await;
    let orders = [
        [Store, Replica, Provider],
        [Replica, Provider, Store],
        [Provider, Store, Replica],
        [Store, Provider, Replica],
        [Provider, Replica, Store],
        [Replica, Store, Provider],
    ];
    for (number, order) in orders.into_iter().enumerate() {
        let servers = FleetServer::all();
        if servers.is_empty() {
            return;
        }
        let place = number % servers.len();
        let server = servers.into_iter().nth(place).unwrap();
        kill_in(order, server).await;
    }
}

/// Kills in this order, a second apart, while a fallback is well.
async fn kill_in(order: [Kill; 3], server: FleetServer) {
    let what = format!("{}, {order:?}", server.engine());
    let fallback = Upstream::start().await;
    let upstream = Upstream::start().await;
    let (url, targets) = (server.url(), two_targets(&upstream, &fallback));
    let mut replicas = Replicas::of(server, &url, upstream, &targets).await;
    let load = SteadyLoad::on(&replicas);
    for kill in order {
        match kill {
            Kill::Store => replicas.cluster.stop(),
            Kill::Replica => replicas.all[2].kill().await,
            Kill::Provider => drop(replicas.upstream.otherwise(Reply::status(500))),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    replicas.cluster.start_again();
    replicas.all.truncate(2);
    until_reached(&replicas).await;
    let ended = load.end().await;
    let (of_killed, ended): (Vec<_>, Vec<_>) = ended.into_iter().partition(|it| it.replica == 2);
    assert_answered(&ended, &what);
    assert!(
        of_killed.iter().any(|it| it.failure.is_some()),
        "{what}: it was killed"
    );
}
