//! Operators' words hold at all replicas.

use super::*;
use crate::{
    core::{FleetCore, StepInput},
    store::FleetStore,
};

#[tokio::test(start_paused = true)]
async fn a_word_holds_at_all_replicas_and_at_those_that_start_later() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    replicas[1].say(OperatorOrder::Force(Forced::Open));
    tokio::time::sleep(KNOWN).await;
    let forced = BTreeMap::from([(CircuitState::ForcedOpen, 3)]);
    assert_eq!(by_state(&replicas), forced);
    let late = Replica::start("d", &store);
    late.fleet.known(KNOWN).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(late.state(), CircuitState::ForcedOpen);
    replicas[2].say(OperatorOrder::Force(Forced::Closed));
    tokio::time::sleep(KNOWN).await;
    let forced = BTreeMap::from([(CircuitState::ForcedClosed, 3)]);
    assert_eq!(by_state(&replicas), forced);
    assert_eq!(late.state(), CircuitState::ForcedClosed);
}

#[tokio::test(start_paused = true)]
async fn words_survive_a_store_that_was_emptied_and_that_was_away() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    replicas[0].say(OperatorOrder::Force(Forced::Open));
    tokio::time::sleep(KNOWN).await;
    store.forget();
    tokio::time::sleep(KNOWN).await;
    let late = Replica::start("d", &store);
    tokio::time::sleep(KNOWN).await;
    assert_eq!(late.state(), CircuitState::ForcedOpen);
    store.set_faults(crate::memory::StoreFaults {
        away: true,
        ..crate::memory::StoreFaults::default()
    });
    tokio::time::sleep(KNOWN).await;
    replicas[0].say(OperatorOrder::Force(Forced::Closed));
    tokio::time::sleep(KNOWN).await;
    assert_eq!(late.state(), CircuitState::ForcedOpen);
    store.set_faults(crate::memory::StoreFaults::default());
    tokio::time::sleep(2 * KNOWN).await;
    assert_eq!(late.state(), CircuitState::ForcedClosed);
}

#[tokio::test(start_paused = true)]
async fn of_two_words_at_once_one_holds_everywhere() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    replicas[0].say(OperatorOrder::Force(Forced::Open));
    replicas[1].say(OperatorOrder::Force(Forced::Closed));
    tokio::time::sleep(KNOWN).await;
    assert_eq!(by_state(&replicas).len(), 1, "{:?}", by_state(&replicas));
}

/// Waits until all others show this state, and returns how long it took.
async fn until_all(replicas: &[Replica], state: CircuitState, what: &str) -> Duration {
    let began = Instant::now();
    while by_state(replicas) != BTreeMap::from([(state, replicas.len())]) {
        let passed = began.elapsed();
        let states = by_state(replicas);
        assert!(passed <= KNOWN, "{what}: {states:?} after {passed:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn openings_of_all_kinds_and_their_resets_are_known_again_and_again() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    // So that what one replica writes in two operations is read between them.
    store.set_faults(crate::memory::StoreFaults {
        delay: Duration::from_millis(10),
        ..crate::memory::StoreFaults::default()
    });
    let first = &replicas[0];
    let reset = || {
        first.world.circuit.lock().reset(Instant::now());
        first.say(OperatorOrder::Reset);
    };
    for round in 0..20 {
        first.say(OperatorOrder::Force(Forced::Open));
        until_all(
            &replicas,
            CircuitState::ForcedOpen,
            &format!("{round} forced"),
        )
        .await;
        reset();
        until_all(
            &replicas,
            CircuitState::Closed,
            &format!("{round} not forced"),
        )
        .await;
        while first.state() != CircuitState::Open {
            first.call(false);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until_all(&replicas, CircuitState::Open, &format!("{round} opened")).await;
        reset();
        until_all(&replicas, CircuitState::Closed, &format!("{round} reset")).await;
        for _ in 0..=round {
            first.call(true);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_published_before_a_reset_opens_nothing_again() {
    let store = MemoryStore::default();
    let sick = Replica::start("a", &store);
    while sick.state() != CircuitState::Open {
        sick.call(false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(KNOWN).await;
    let records = FleetStore::snapshot(&store).await.unwrap();
    // Another one whose operator resets the circuit, and which reads what was there before.
    let idle = Replica::start("b", &MemoryStore::default());
    let mut core = FleetCore::new(FleetMember {
        id: "b".to_owned(),
        ..FleetMember::default()
    });
    let mut look = |passed: u64| {
        let now = Instant::now() + Duration::from_millis(passed);
        core.step(StepInput::Snapshot(records.clone()), now);
        core.step(StepInput::Local(idle.world.facts(now)), now)
            .effects
    };
    assert_eq!(look(0), []);
    let opened = look(300);
    assert!(
        matches!(&*opened, [FleetEffect::OpenCircuit(..)]),
        "{opened:?}"
    );
    idle.world.apply(opened[0].clone(), Instant::now());
    assert_eq!(look(400), []);
    idle.world.circuit.lock().reset(Instant::now());
    for passed in [500, 800, 1500] {
        assert_eq!(look(passed), [], "{passed} ms");
    }
}
