//! A store that is away, slow, silent or forgetful, and replicas that are gone.

use super::*;
use crate::{
    core::{FleetCore, StepInput},
    memory::StoreFaults,
    store::StoredRecord,
};

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_each_replica_decides_as_one_alone() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    store.set_faults(StoreFaults {
        away: true,
        ..StoreFaults::default()
    });
    tokio::time::sleep(KNOWN).await;
    let alone = Replica::start("alone", &MemoryStore::default());
    let mut failed = [0; 3];
    let mut by_one = 0;
    for _ in 0..1000 {
        for (replica, failed) in replicas.iter().zip(&mut failed) {
            *failed += u32::from(replica.call(false));
        }
        by_one += u32::from(alone.call(false));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(failed, [by_one; 3]);
    for replica in &replicas {
        let status = replica.fleet.status();
        assert_eq!(status.away.as_deref(), Some("the store is away"));
        assert_eq!(status.live.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn evidence_is_published_anew_when_the_store_comes_back_or_forgot_everything() {
    for is_away in [true, false] {
        let store = MemoryStore::default();
        let policy = CircuitPolicy {
            open_base: Duration::from_mins(1),
            ..CircuitPolicy::default()
        };
        let sick = Replica::with("a", &store, policy);
        if is_away {
            store.set_faults(StoreFaults {
                away: true,
                ..StoreFaults::default()
            });
        }
        while sick.state() != CircuitState::Open {
            sick.call(false);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        tokio::time::sleep(KNOWN).await;
        store.forget();
        store.set_faults(StoreFaults::default());
        tokio::time::sleep(2 * KNOWN).await;
        let late = Replica::start("b", &store);
        tokio::time::sleep(KNOWN).await;
        assert_eq!(late.state(), CircuitState::Open, "away: {is_away}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_hints_all_still_know_within_half_a_second() {
    let store = MemoryStore::default();
    store.set_faults(StoreFaults {
        silent: true,
        ..StoreFaults::default()
    });
    let replicas = three(&store).await;
    replicas[0].say(OperatorOrder::Force(Forced::Open));
    tokio::time::sleep(KNOWN).await;
    assert_eq!(
        by_state(&replicas),
        BTreeMap::from([(CircuitState::ForcedOpen, 3)])
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_gone_is_not_counted_for_long() {
    let store = MemoryStore::default();
    let [first, second, third] = three(&store).await;
    drop((first, second));
    tokio::time::sleep(Duration::from_secs(6)).await;
    let live = third.fleet.status().live;
    assert_eq!(live.len(), 1);
    assert_eq!(live[0].id, "c");
}

#[tokio::test(start_paused = true)]
async fn a_probe_waits_for_a_slow_store_no_longer_than_fifty_milliseconds() {
    let store = MemoryStore::default();
    let replica = Replica::start("a", &store);
    tokio::time::sleep(KNOWN).await;
    store.set_faults(StoreFaults {
        delay: Duration::from_millis(700),
        ..StoreFaults::default()
    });
    let lease = crate::store::ProbeLease {
        name: "probe".to_owned(),
        holder: "one".to_owned(),
        places: 1,
        lifetime: Duration::from_secs(10),
    };
    let began = Instant::now();
    assert_eq!(replica.fleet.lease(&lease).await, None);
    assert!(began.elapsed() <= Duration::from_millis(51));
}

#[tokio::test(start_paused = true)]
async fn no_more_probes_are_out_than_places_whoever_asks() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    let lease = |holder: usize| crate::store::ProbeLease {
        name: "probe".to_owned(),
        holder: holder.to_string(),
        places: 2,
        lifetime: Duration::from_secs(10),
    };
    let mut taken = Vec::new();
    for (number, replica) in replicas.iter().cycle().take(9).enumerate() {
        if replica.fleet.lease(&lease(number)).await == Some(Ok(())) {
            taken.push(number);
        }
    }
    assert_eq!(taken.len(), 2);
    replicas[2].fleet.release(&lease(taken[0])).await;
    assert_eq!(replicas[1].fleet.lease(&lease(100)).await, Some(Ok(())));
    let denied = replicas[0].fleet.lease(&lease(101)).await;
    assert!(matches!(denied, Some(Err(wait)) if wait <= Duration::from_secs(10)));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_calls_on_a_closed_circuit_make_no_operation_of_the_store() {
    let mut operations = Vec::new();
    for calls in [0_usize, 10_000] {
        let store = MemoryStore::default();
        let replicas = three(&store).await;
        let before = store.operations();
        for number in 0..10_000 {
            if number < calls {
                assert!(replicas[number % 3].call(true));
                replicas[number % 3].call_by_account(true, None);
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        operations.push(store.operations() - before);
    }
    let [idle, busy] = operations[..] else {
        unreachable!("two runs")
    };
    // The looks of three replicas in ten seconds and more fall a little differently.
    assert!(
        busy <= idle + 10,
        "{busy} operations with calls, {idle} without"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_that_can_be_read_but_not_written_is_away_once_and_not_again_and_again() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    store.set_faults(StoreFaults {
        full: true,
        ..StoreFaults::default()
    });
    tokio::time::sleep(Duration::from_secs(10)).await;
    store.set_faults(StoreFaults::default());
    tokio::time::sleep(2 * KNOWN).await;
    for replica in &replicas {
        let statuses = replica.world.statuses.lock();
        let mut away: Vec<bool> = statuses.iter().map(|it| it.away.is_some()).collect();
        away.dedup();
        assert_eq!(away, [false, true, false]);
        assert_eq!(replica.fleet.status().live.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_store_whose_clock_was_set_back_nothing_holds_the_others_up() {
    let store = MemoryStore::default();
    store.set_faults(StoreFaults {
        ahead: Duration::from_hours(1),
        ..StoreFaults::default()
    });
    let [gone, second, third] = three(&store).await;
    let lease = |holder: &str| crate::store::ProbeLease {
        name: "probe".to_owned(),
        holder: holder.to_owned(),
        places: 1,
        lifetime: Duration::from_secs(10),
    };
    assert_eq!(gone.fleet.lease(&lease("gone")).await, Some(Ok(())));
    drop(gone);
    store.set_faults(StoreFaults::default());
    assert_eq!(second.fleet.lease(&lease("second")).await, Some(Ok(())));
    assert!(matches!(
        third.fleet.lease(&lease("third")).await,
        Some(Err(_))
    ));
    tokio::time::sleep(Duration::from_secs(6)).await;
    for replica in [&second, &third] {
        let live = replica.fleet.status().live;
        let ids: Vec<&str> = live.iter().map(|member| member.id.as_str()).collect();
        assert_eq!(ids, ["b", "c"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_is_slow_while_a_probe_would_not_wait_for_it_and_all_else_goes_on() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    let slow = |delay| StoreFaults {
        delay: Duration::from_millis(delay),
        ..StoreFaults::default()
    };
    // One pause, however long, is no slow store.
    store.set_faults(slow(900));
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.set_faults(slow(2));
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.set_faults(slow(60));
    tokio::time::sleep(Duration::from_secs(3)).await;
    replicas[0].say(OperatorOrder::Force(Forced::Open));
    tokio::time::sleep(KNOWN).await;
    assert_eq!(
        by_state(&replicas),
        BTreeMap::from([(CircuitState::ForcedOpen, 3)])
    );
    let before = store.operations();
    let lease = crate::store::ProbeLease {
        name: "probe".to_owned(),
        holder: "one".to_owned(),
        places: 1,
        lifetime: Duration::from_secs(10),
    };
    assert_eq!(replicas[0].fleet.lease(&lease).await, None);
    assert_eq!(store.operations(), before, "a probe asks no slow store");
    store.set_faults(slow(2));
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(replicas[0].fleet.lease(&lease).await, Some(Ok(())));
    for replica in &replicas {
        let statuses = replica.world.statuses.lock();
        assert!(statuses.iter().all(|it| it.away.is_none()));
        let mut slow: Vec<bool> = statuses.iter().map(|it| it.is_slow).collect();
        slow.dedup();
        assert_eq!(slow, [false, true, false]);
        assert_eq!(statuses.last().unwrap().live.len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_replica_published_is_published_again_if_the_store_has_an_earlier_record_of_it() {
    let sick = Replica::start("a", &MemoryStore::default());
    while sick.state() != CircuitState::Open {
        sick.call(false);
    }
    let mut core = FleetCore::new(FleetMember {
        id: "a".to_owned(),
        ..FleetMember::default()
    });
    let mut look = |records: Vec<StoredRecord>| {
        let now = Instant::now();
        core.step(StepInput::Snapshot(records), now);
        let local = StepInput::Local(sick.world.facts(now));
        let mut writes = core.step(local, now).writes.into_iter();
        writes.rfind(|write| write.subject == target().0)
    };
    let published = look(Vec::new()).unwrap();
    let record = |epoch: u64| StoredRecord {
        subject: published.subject.clone(),
        owner: published.owner.clone(),
        epoch,
        value: published.value.clone().unwrap(),
        age: Duration::ZERO,
    };
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(look(vec![record(published.epoch)]), None);
    // It was restored from a backup.
    let again = look(vec![record(published.epoch - 1)]).unwrap();
    assert!(again.epoch > published.epoch);
}
