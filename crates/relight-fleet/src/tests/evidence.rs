//! Circuits of several replicas: one rule on the sum, and nobody closed by a sick replica.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_outage_that_one_replica_meets_keeps_the_idle_ones_away_too() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    let mut failed = 0;
    while replicas[0].state() != CircuitState::Open {
        failed += u32::from(replicas[0].call(false));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(KNOWN).await;
    assert_eq!(
        by_state(&replicas),
        BTreeMap::from([(CircuitState::Open, 3)])
    );
    assert!(failed > 0);
}

#[tokio::test(start_paused = true)]
async fn an_outage_costs_the_fleet_what_it_costs_one_circuit_and_one_call_for_each_replica() {
    // Calls a second at each replica.
    for (rate, count) in [(50_u64, 20_usize), (50, 4), (16, 3), (2, 8), (1, 20)] {
        let gap = Duration::from_millis(1000 / rate / count as u64);
        let alone = MemoryStore::default();
        let one = [Replica::start("one", &alone)];
        let by_one = outage(&one, gap).await;
        let store = MemoryStore::default();
        let replicas: Vec<Replica> = (0..count)
            .map(|number| Replica::start(&format!("r{number:02}"), &store))
            .collect();
        let by_all = outage(&replicas, gap).await;
        // What is sent while a record is on its way comes on top.
        let on_the_way = (60 / gap.as_millis().max(1)) as usize;
        assert!(
            by_all <= by_one + count + on_the_way,
            "{count} replicas with {rate} calls a second: {by_all} failed, of one circuit {by_one}"
        );
    }
}

/// Healthy traffic in turn, then an outage until no circuit is closed; returns the failed calls.
async fn outage(replicas: &[Replica], gap: Duration) -> usize {
    tokio::time::sleep(KNOWN).await;
    let end = Instant::now() + Duration::from_secs(12);
    let mut next = (0..replicas.len()).cycle();
    while Instant::now() < end {
        replicas[next.next().unwrap()].call(true);
        tokio::time::sleep(gap).await;
    }
    let mut failed = 0;
    let latest = Instant::now() + Duration::from_mins(1);
    while replicas.iter().any(|it| it.state() == CircuitState::Closed) {
        assert!(Instant::now() < latest, "{:?}", by_state(replicas));
        failed += usize::from(replicas[next.next().unwrap()].call(false));
        tokio::time::sleep(gap).await;
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_alone_cannot_reach_a_target_closes_nobody_else_and_is_named() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    for _ in 0..200 {
        replicas[0].call(false);
        replicas[1].call(true);
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(replicas[1].state(), CircuitState::Closed);
        assert_eq!(replicas[2].state(), CircuitState::Closed, "an idle one");
    }
    assert_ne!(replicas[0].state(), CircuitState::Closed);
    for replica in &replicas {
        let alone = replica.fleet.status().alone;
        assert_eq!(alone, [(target(), "a".to_owned())]);
    }
}

#[tokio::test(start_paused = true)]
async fn all_follow_the_first_one_that_finds_the_target_well() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    outage(&replicas, Duration::from_millis(20)).await;
    tokio::time::sleep(KNOWN).await;
    assert_eq!(
        by_state(&replicas),
        BTreeMap::from([(CircuitState::Open, 3)])
    );
    // The two others have no calls any more.
    recovers(&replicas[2]).await;
    tokio::time::sleep(KNOWN).await;
    assert_eq!(
        by_state(&replicas),
        BTreeMap::from([(CircuitState::Closed, 3)])
    );
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_failed_keeps_those_away_whose_own_time_is_over() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    outage(&replicas, Duration::from_millis(20)).await;
    for round in 0..9 {
        // Longer than any of them is open.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let probing = round % 3;
        assert!(replicas[probing].call(false), "{probing}");
        tokio::time::sleep(KNOWN).await;
        for replica in &replicas {
            assert!(!replica.call(false), "one probes after {probing}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_may_not_be_followed_keeps_nobody_from_following_another() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    for replica in replicas[..2].iter().cycle() {
        if replicas.iter().all(|it| it.state() == CircuitState::Open) {
            break;
        }
        replica.call(false);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The last one had no failures: it may have a way that the others have not.
    recovers(&replicas[2]).await;
    tokio::time::sleep(KNOWN).await;
    assert_eq!(replicas[1].state(), CircuitState::Open);
    recovers(&replicas[0]).await;
    tokio::time::sleep(KNOWN).await;
    assert_eq!(replicas[1].state(), CircuitState::Closed);
}

/// Calls that succeed until the circuit is closed.
async fn recovers(replica: &Replica) {
    let latest = Instant::now() + Duration::from_mins(1);
    while replica.state() != CircuitState::Closed {
        assert!(Instant::now() < latest, "{:?}", replica.state());
        replica.call(true);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_healthy_fleet_publishes_nothing_but_signs_of_life() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    for number in 0..2000 {
        // One call in fifty fails, as it does everywhere.
        replicas[number % 3].call(number % 50 != 0);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let records = crate::store::FleetStore::snapshot(&store).await.unwrap();
    let facts: Vec<_> = records
        .iter()
        .filter(|record| record.subject != "member")
        .collect();
    assert!(facts.is_empty(), "{facts:?}");
}
