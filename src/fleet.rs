//! Facts that this replica shares with others, so that they act as one.
//!
//! The crate `relight-fleet` decides and exchanges; this module shows it the circuits and gates of
//! the running engine, and does there what it decides. No call waits for any of it, but a probe.

mod identity;
mod local;
mod probes;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;
use relight_fleet::{
    Exchange, Fleet, FleetMember, FleetStatus, FleetStore, FleetStoreError, OperatorOrder,
    OperatorWord, PostgresStore, ValkeyStore,
};
use tokio::{sync::watch, task::JoinSet};
use uuid::Uuid;

use self::{identity::Identities, local::LocalTargets, probes::LeasedProbes};
use crate::{
    config::{Config, fleet::SharedStore},
    domain::{event::EventBody, fold::hash_text},
    engine::Engine,
    events::EventBus,
    journal::JournalStore,
    layers::targets::{TargetState, Targets},
    policy::circuit::Forced,
};

/// Name of the store in the events of its loss and in metrics.
pub const STORE: &str = "fleet";

/// Longest wait at the start for what operators said earlier.
const KNOWN: Duration = Duration::from_secs(1);

/// The other replicas; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Replicas(Option<Joined>);

#[derive(Debug, Clone)]
struct Joined {
    fleet: Fleet,
    identities: Arc<Identities>,
    /// Id of this replica.
    id: Arc<str>,
    since: Arc<Mutex<Option<Timestamp>>>,
}

/// Fleet as a person sees it.
#[derive(Debug, Clone)]
pub struct FleetView {
    /// The store's engine.
    pub engine: &'static str,
    /// Knowledge of the fleet.
    pub status: FleetStatus,
    /// Time at which the store was last lost or found; `None` if neither happened.
    pub since: Option<Timestamp>,
    /// Troubles in words, most important first.
    pub troubles: Vec<String>,
}

/// The parts of a running Relight that act as one with those of other replicas.
pub(crate) trait FleetHost: Send + Sync + 'static {
    /// Returns its targets.
    fn targets(&self) -> &Targets;

    /// Returns the bus of its events.
    fn events(&self) -> &EventBus;

    /// Returns the configuration in force.
    fn config(&self) -> Arc<Config>;

    /// Holds this part of every limit of a tenant (0 to 1).
    fn share_limits(&self, share: f64);

    /// Returns a random number from 0 to 1.
    fn dice(&self) -> f64 {
        rand::random()
    }
}

impl FleetHost for Engine {
    fn targets(&self) -> &Targets {
        self.targets()
    }

    fn events(&self) -> &EventBus {
        self.events()
    }

    fn config(&self) -> Arc<Config> {
        self.config()
    }

    fn share_limits(&self, share: f64) {
        self.share_limits(share);
    }
}

// === impl Replicas ===

impl Replicas {
    /// Joins the replicas that share the configured store, and waits a moment for what operators
    /// said; alone if none is configured. The store need not be reachable.
    ///
    /// # Errors
    /// [`FleetStoreError`] if the store's URL cannot be read.
    pub async fn join(
        config: &Config,
        engine: &Engine,
        me: FleetMember,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, FleetStoreError> {
        let Some(store) = store_of(config)? else {
            return Ok(Self::default());
        };
        Ok(Self::at(store, Arc::new(engine.clone()), me, tasks).await)
    }

    /// Joins the replicas that share this store, and waits a moment for what operators said.
    pub(crate) async fn at(
        store: Arc<dyn FleetStore>,
        host: Arc<dyn FleetHost>,
        me: FleetMember,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let id: Arc<str> = me.id.as_str().into();
        let identities = Arc::new(Identities::new(Arc::clone(&host)));
        let since = Arc::<Mutex<Option<Timestamp>>>::default();
        let local = LocalTargets::new(
            Arc::clone(&host),
            Arc::clone(&id),
            Arc::clone(&identities),
            Arc::clone(&since),
        );
        let (exchange, fleet) = Exchange::new(store, me, Arc::new(local));
        tasks.spawn(exchange.run());
        fleet.known(KNOWN).await;
        let probes = LeasedProbes::new(fleet.clone(), Arc::clone(&identities));
        host.targets().share_probes(Arc::new(probes));
        Self(Some(Joined {
            fleet,
            identities,
            id,
            since,
        }))
    }

    /// Tells the other replicas that an operator forced a circuit.
    pub fn forced(
        &self,
        state: &TargetState,
        forced: Forced,
        operator: Option<&str>,
        reason: &str,
    ) {
        self.spread(state, OperatorOrder::Force(forced), operator, reason);
    }

    /// Tells the other replicas that an operator reset a circuit.
    pub fn reset(&self, state: &TargetState, operator: Option<&str>) {
        self.spread(state, OperatorOrder::Reset, operator, "");
    }

    fn spread(
        &self,
        state: &TargetState,
        order: OperatorOrder,
        operator: Option<&str>,
        reason: &str,
    ) {
        let Some(joined) = &self.0 else { return };
        let Some(known) = joined.identities.of(&state.target) else {
            return;
        };
        let word = OperatorWord {
            id: Uuid::now_v7().to_string(),
            epoch: 0,
            order,
            operator: operator.map(str::to_owned),
            reason: reason.to_owned(),
        };
        joined.fleet.say(known.word.clone(), word);
    }

    /// Returns who lives, now and as it changes; `None` if this replica is alone by its settings.
    pub fn watch(&self) -> Option<watch::Receiver<FleetStatus>> {
        self.0.as_ref().map(|joined| joined.fleet.watch())
    }

    /// Returns what a person sees of the fleet; `None` if this replica is alone.
    pub fn view(&self) -> Option<FleetView> {
        let joined = self.0.as_ref()?;
        let status = joined.fleet.status();
        let alone = status.alone.iter().flat_map(|(subject, id)| {
            let who = if **id == *joined.id {
                "this replica".to_owned()
            } else {
                let member = status.live.iter().find(|member| member.id == *id);
                format!("the replica {}", member.map_or(id, |member| &member.name))
            };
            let targets = joined.identities.targets(subject);
            targets
                .into_iter()
                .map(move |part| format!("{who} alone cannot reach {}; others can", part.target))
        });
        Some(FleetView {
            engine: joined.fleet.engine(),
            troubles: alone.collect(),
            since: *joined.since.lock(),
            status,
        })
    }
}

/// Returns this replica as the others see it: the id of its process, and where its gRPC API
/// listens.
pub fn member(config: &Config, id: &str, listening: SocketAddr) -> FleetMember {
    let url = config.fleet.url(listening, config.server.tls.is_some());
    let journal = match &config.journal.store {
        JournalStore::Postgres(url) => hash_text(url.expose()),
        JournalStore::Embedded | JournalStore::Memory | JournalStore::Sqlite(_) => String::new(),
    };
    // The last part of an id is chance.
    let short = || id.rsplit('-').next().unwrap_or(id).to_owned();
    FleetMember {
        id: id.to_owned(),
        name: config.fleet.name.clone().unwrap_or_else(short),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        address: url.unwrap_or_default(),
        journal,
    }
}

/// Returns the store that is configured; `None` if replicas share nothing.
fn store_of(config: &Config) -> Result<Option<Arc<dyn FleetStore>>, FleetStoreError> {
    if let SharedStore::Valkey(url) = &config.fleet.store {
        return Ok(Some(Arc::new(ValkeyStore::at(url.expose())?)));
    }
    let url = config.fleet.store.postgres(&config.journal.store);
    let store = url.map(|url| PostgresStore::at(url.expose())).transpose()?;
    Ok(store.map(|store| Arc::new(store) as Arc<dyn FleetStore>))
}

/// Returns the event that a loss of the store, or its end, is reported by.
fn store_event(status: &FleetStatus, lost_for: Duration) -> EventBody {
    let store = STORE.to_owned();
    match status.trouble() {
        Some(reason) => EventBody::StoreLost { store, reason },
        None => EventBody::StoreFound {
            store,
            lost_ms: u64::try_from(lost_for.as_millis()).unwrap_or(u64::MAX),
        },
    }
}
