//! Gates of several replicas: nobody calls before the time that one of them knows.

use super::*;

/// Has the first replica refused until its gate closes, and lets the others know.
async fn closed(replicas: &[Replica]) {
    while !replicas[0].gate_is_closed() {
        replicas[0].call_by_account(false, None);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(KNOWN).await;
    for replica in replicas {
        assert!(replica.gate_is_closed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_key_costs_all_replicas_together_the_probes_of_one() {
    let one = MemoryStore::default();
    let alone = [Replica::start("one", &one)];
    closed(&alone).await;
    let by_one = refused_in(&alone, Duration::from_mins(10)).await;
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    closed(&replicas).await;
    let by_three = refused_in(&replicas, Duration::from_mins(10)).await;
    assert!(
        by_three <= by_one + 1,
        "{by_three} calls of three replicas were refused, of one {by_one}"
    );
}

/// All call ten times a second; returns how many calls reached the provider, which refuses them.
async fn refused_in(replicas: &[Replica], time: Duration) -> usize {
    let end = Instant::now() + time;
    let mut refused = 0;
    while Instant::now() < end {
        for replica in replicas {
            refused += usize::from(replica.call_by_account(false, None));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    refused
}

#[tokio::test(start_paused = true)]
async fn one_that_has_no_calls_does_not_keep_the_others_from_probing() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    closed(&replicas).await;
    // The first one, which would probe, has no more calls; the key is good again.
    let began = Instant::now();
    while replicas[2].gate_is_closed() {
        replicas[2].call_by_account(true, None);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    tokio::time::sleep(KNOWN).await;
    for replica in &replicas {
        assert!(!replica.gate_is_closed(), "a success opens it for all");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_starts_later_does_not_call_with_a_key_that_is_known_to_be_refused() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    closed(&replicas).await;
    let late = Replica::start("d", &store);
    late.fleet.known(KNOWN).await;
    tokio::time::sleep(KNOWN).await;
    assert!(late.gate_is_closed());
    drop(replicas);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(
        late.gate_is_closed(),
        "that the others are gone mends nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_closing_after_an_opening_holds_again() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    for _ in 0..3 {
        closed(&replicas).await;
        while replicas[1].gate_is_closed() {
            replicas[1].call_by_account(true, None);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(KNOWN).await;
        assert!(replicas.iter().all(|replica| !replica.gate_is_closed()));
    }
}

#[tokio::test(start_paused = true)]
async fn closings_and_openings_are_known_again_and_again() {
    let store = MemoryStore::default();
    let replicas = three(&store).await;
    let first = &replicas[0];
    for round in 0..20 {
        for is_closed in [true, false] {
            while first.gate_is_closed() != is_closed {
                first.call_by_account(!is_closed, None);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let began = Instant::now();
            while replicas.iter().any(|it| it.gate_is_closed() != is_closed) {
                let passed = began.elapsed();
                assert!(passed <= KNOWN, "{round}, closed: {is_closed}: {passed:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}
