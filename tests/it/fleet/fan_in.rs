//! A watcher at any replica gets every event of all replicas once, with the exact number of those
//! that it missed (F9).

use std::collections::BTreeMap;

use relight::internals::grpc::v1::{
    Missed, RecoveryEvent, RecoveryEventFilter, WatchRecoveryRequest, WatchRecoveryResponse,
    recovery_event::Body, watch_recovery_request::Start,
};
use rustix::process::Signal;
use tokio::time::timeout;
use tonic::Streaming;

use super::*;
use crate::support::{binary::run, http::metrics};

/// Longest wait for an event.
const PATIENCE: Duration = Duration::from_secs(20);

/// A watch at one replica.
struct Watching {
    stream: Streaming<WatchRecoveryResponse>,
    /// All events but bookmarks, in their order.
    seen: Vec<RecoveryEvent>,
    /// The cursor of the last message.
    cursor: String,
}

// === impl Watching ===

impl Watching {
    async fn start(replica: &Process, start: Start, replicas: &[&str]) -> Self {
        let filter = RecoveryEventFilter {
            replicas: replicas.iter().map(ToString::to_string).collect(),
            ..RecoveryEventFilter::default()
        };
        let request = WatchRecoveryRequest {
            filter: Some(filter),
            start: Some(start),
        };
        let stream = replica.recovery().watch_recovery(request).await.unwrap();
        let mut watching = Self {
            stream: stream.into_inner(),
            seen: Vec::new(),
            cursor: String::new(),
        };
        watching.read().await;
        watching
    }

    async fn live(replica: &Process) -> Self {
        Self::start(replica, Start::Live(true), &[]).await
    }

    async fn after(replica: &Process, cursor: &str) -> Self {
        Self::start(replica, Start::After(cursor.to_owned()), &[]).await
    }

    /// Reads one message.
    async fn read(&mut self) {
        let message = timeout(PATIENCE, self.stream.message()).await;
        let message = message.unwrap_or_else(|_| panic!("nothing after {:?}", self.kinds()));
        let event = message.unwrap().unwrap().event.unwrap();
        self.cursor.clone_from(&event.cursor);
        if !matches!(event.body, Some(Body::Bookmark(_))) {
            self.seen.push(event);
        }
    }

    /// Reads until this many invocations were seen to succeed.
    async fn until_succeeded(&mut self, count: usize) {
        while self.succeeded().len() < count {
            self.read().await;
        }
    }

    /// Reads until something was seen.
    async fn until(&mut self, is_it: impl Fn(&RecoveryEvent) -> bool) -> RecoveryEvent {
        loop {
            if let Some(found) = self.seen.iter().find(|event| is_it(event)) {
                return found.clone();
            }
            self.read().await;
        }
    }

    /// The invocations that succeeded, and their replicas, in the order of the events.
    fn succeeded(&self) -> Vec<(String, String)> {
        let ends = self.seen.iter();
        ends.filter(|event| matches!(event.body, Some(Body::InvocationSucceeded(_))))
            .map(|event| (event.invocation_id.clone(), event.replica.clone()))
            .collect()
    }

    fn kinds(&self) -> Vec<(String, String)> {
        let kinds = self.seen.iter();
        kinds
            .map(|event| {
                (
                    event.replica.clone(),
                    crate::support::relight::kind_of(event),
                )
            })
            .collect()
    }

    fn missed(&self) -> Vec<(String, Missed)> {
        let events = self.seen.iter();
        events
            .filter_map(|event| match &event.body {
                Some(Body::Missed(missed)) => Some((event.replica.clone(), missed.clone())),
                _ => None,
            })
            .collect()
    }
}

async fn name(replica: &Process) -> String {
    let request = GetStatusRequest::default();
    let status = replica.admin().get_status(request).await.unwrap();
    status.into_inner().replica
}

/// Calls a replica so often, and returns the invocations by their ids.
async fn calls(replica: &Process, count: usize, made: &mut BTreeMap<String, String>) {
    let name = name(replica).await;
    for _ in 0..count {
        let response = call(replica).await;
        assert!(matches!(response.outcome, Some(Outcome::Completion(_))));
        made.insert(response.invocation_id, name.clone());
    }
}

fn sorted(mut pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    pairs.sort();
    pairs
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_at_any_replica_sees_each_event_of_all_once_with_its_replica() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let mut watches = Vec::new();
    for replica in &replicas.all {
        watches.push(Watching::live(replica).await);
    }
    let first = name(&replicas.all[0]).await;
    let mut narrow = Watching::start(&replicas.all[1], Start::Live(true), &[&first]).await;
    let mut made = BTreeMap::new();
    for round in 1..4 {
        for replica in &replicas.all {
            calls(replica, round, &mut made).await;
        }
    }
    for watch in &mut watches {
        watch.until_succeeded(made.len()).await;
        let expected: Vec<_> = made.clone().into_iter().collect();
        assert_eq!(sorted(watch.succeeded()), expected);
        assert!(watch.missed().is_empty(), "{:?}", watch.kinds());
    }
    let own: Vec<_> = made
        .into_iter()
        .filter(|(_, name)| *name == first)
        .collect();
    narrow.until_succeeded(own.len()).await;
    assert_eq!(sorted(narrow.succeeded()), own);
    assert!(narrow.seen.iter().all(|event| event.replica == first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_breaks_and_goes_on_at_another_replica_sees_each_event_once() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let mut made = BTreeMap::new();
    let mut seen = Vec::new();
    let mut cursor = Watching::live(&replicas.all[0]).await.cursor;
    for round in 0..8 {
        let at = &replicas.all[rand::random_range(0..3)];
        // Some happen while nobody watches, some while somebody does.
        calls(&replicas.all[round % 3], 1 + round % 4, &mut made).await;
        let mut watch = Watching::after(at, &cursor).await;
        calls(&replicas.all[(round + 1) % 3], 2, &mut made).await;
        // It breaks wherever that may be.
        for _ in 0..rand::random_range(1..9) {
            watch.read().await;
        }
        assert!(watch.missed().is_empty(), "{:?}", watch.kinds());
        cursor.clone_from(&watch.cursor);
        seen.extend(watch.succeeded());
    }
    let mut last = Watching::after(&replicas.all[1], &cursor).await;
    last.until_succeeded(made.len() - seen.len()).await;
    seen.extend(last.succeeded());
    assert_eq!(sorted(seen), made.into_iter().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_overflowed_at_each_replica_is_counted_exactly() {
    const CAPACITY: u64 = 16;
    let _room = room().await;
    let settings = format!("events: {{ capacity: {CAPACITY} }}");
    let Some(replicas) = Replicas::three(&settings).await else {
        return;
    };
    let mut ignored = BTreeMap::new();
    let start = Watching::live(&replicas.all[0]).await.cursor;
    // One call has as many events as the next one: how many, two positions tell.
    calls(&replicas.all[1], 20, &mut ignored).await;
    let earlier = Watching::after(&replicas.all[0], &start).await;
    let mut earlier = earlier;
    let missed = earlier
        .until(|event| matches!(event.body, Some(Body::Missed(_))))
        .await;
    let Some(Body::Missed(first)) = missed.body else {
        unreachable!()
    };
    let each = (first.count + CAPACITY) / 20;
    assert_eq!(first.count, 20 * each - CAPACITY, "a whole number a call");
    calls(&replicas.all[1], 7, &mut ignored).await;
    calls(&replicas.all[2], 9, &mut ignored).await;
    let mut watch = Watching::after(&replicas.all[2], &start).await;
    let mut missed = BTreeMap::new();
    while missed.len() < 2 {
        watch.read().await;
        missed = watch.missed().into_iter().collect();
    }
    let counts = [&replicas.all[1], &replicas.all[2]].map(async |at| missed[&name(at).await].count);
    let [second, third] = counts;
    assert_eq!(second.await, 27 * each - CAPACITY);
    assert_eq!(third.await, 9 * each - CAPACITY);
    let of_first = &missed[&name(&replicas.all[1]).await];
    assert!(!of_first.to_cursor.is_empty() && of_first.from_cursor != of_first.to_cursor);
    assert_eq!(watch.missed().len(), 2, "each gap once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_is_killed_is_named_and_one_that_joins_is_seen_from_its_beginning() {
    let _room = room().await;
    let Some(mut replicas) = Replicas::three("").await else {
        return;
    };
    let mut watch = Watching::live(&replicas.all[0]).await;
    let lost = name(&replicas.all[2]).await;
    let mut made = BTreeMap::new();
    calls(&replicas.all[2], 2, &mut made).await;
    watch.until_succeeded(2).await;
    replicas.all[2].kill().await;
    calls(&replicas.all[1], 2, &mut made).await;
    let is_lost = |event: &RecoveryEvent| match &event.body {
        Some(Body::ReplicaLost(lost)) => !lost.gone,
        _ => false,
    };
    assert_eq!(watch.until(is_lost).await.replica, lost);
    // Whoever asks for all is not kept waiting for it, and learns who is missing.
    let asked = timeout(KNOWN, status(&replicas.all[0])).await.unwrap();
    let named: Vec<&str> = asked.silent.iter().map(|it| it.replica.as_str()).collect();
    assert!(
        named == [lost.as_str()] || asked.others.len() == 1,
        "{asked:?}"
    );
    let is_gone = |event: &RecoveryEvent| match &event.body {
        Some(Body::ReplicaLost(lost)) => lost.gone,
        _ => false,
    };
    assert_eq!(watch.until(is_gone).await.replica, lost);
    let is_missed = |event: &RecoveryEvent| matches!(event.body, Some(Body::Missed(_)));
    watch.until(is_missed).await;
    let counts = watch.missed().into_iter().map(|(of, it)| (of, it.count));
    assert_eq!(counts.collect::<Vec<_>>(), [(lost.clone(), 0)]);
    let late = replicas.start_another().await;
    calls(late, 3, &mut made).await;
    watch.until_succeeded(made.len()).await;
    assert_eq!(
        sorted(watch.succeeded()),
        made.into_iter().collect::<Vec<_>>()
    );
    let found = watch
        .until(|event| matches!(event.body, Some(Body::ReplicaFound(_))))
        .await;
    assert_eq!(found.replica, name(&replicas.all[3]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_ends_in_order_keeps_no_event_back() {
    let _room = room().await;
    let Some(mut replicas) = Replicas::three("").await else {
        return;
    };
    let mut watch = Watching::live(&replicas.all[0]).await;
    let mut made = BTreeMap::new();
    calls(&replicas.all[1], 3, &mut made).await;
    assert_eq!(replicas.all[1].terminate().await, Some(0));
    let gone = watch
        .until(|event| matches!(&event.body, Some(Body::ReplicaLost(lost)) if lost.gone))
        .await;
    calls(&replicas.all[2], 1, &mut made).await;
    watch.until_succeeded(made.len()).await;
    assert_eq!(
        sorted(watch.succeeded()),
        made.into_iter().collect::<Vec<_>>()
    );
    assert!(watch.missed().is_empty(), "{gone:?} {:?}", watch.kinds());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_froze_is_seen_on_from_where_it_was() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let mut watch = Watching::live(&replicas.all[0]).await;
    let mut made = BTreeMap::new();
    calls(&replicas.all[1], 2, &mut made).await;
    replicas.all[1].signal(Signal::STOP);
    let is_gone =
        |event: &RecoveryEvent| matches!(&event.body, Some(Body::ReplicaLost(it)) if it.gone);
    watch.until(is_gone).await;
    calls(&replicas.all[2], 1, &mut made).await;
    replicas.all[1].signal(Signal::CONT);
    calls(&replicas.all[1], 3, &mut made).await;
    watch.until_succeeded(made.len()).await;
    assert_eq!(
        sorted(watch.succeeded()),
        made.into_iter().collect::<Vec<_>>()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_while_nobody_watches() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let watched = async |replica: &Process| {
        let text = metrics(&replica.admin_address).await;
        let lines = text.lines().filter(|line| {
            line.starts_with("rpc_server_call_duration_seconds_count")
                && line.contains("WatchRecovery")
        });
        lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
            .sum::<u64>()
    };
    let mut made = BTreeMap::new();
    calls(&replicas.all[0], 3, &mut made).await;
    assert_eq!(watched(&replicas.all[1]).await, 0);
    let watch = Watching::live(&replicas.all[0]).await;
    // Watchers are counted by the replica that they watch.
    assert_eq!(status(&replicas.all[0]).await.watchers, 1);
    assert_eq!(status(&replicas.all[1]).await.watchers, 0);
    drop(watch);
    until("the end of the watch", async || {
        watched(&replicas.all[1]).await == 1
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn any_replica_shows_all_and_one_by_its_name() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let mut names = Vec::new();
    for replica in &replicas.all {
        names.push(name(replica).await);
    }
    let shown = |status: &GetStatusResponse| {
        let others = status.others.iter().map(|other| other.replica.clone());
        let mut all: Vec<String> = others.chain([status.replica.clone()]).collect();
        all.sort();
        all
    };
    let all = {
        let mut all = names.clone();
        all.sort();
        all
    };
    for replica in &replicas.all {
        let asked = status(replica).await;
        assert_eq!(shown(&asked), all);
        assert!(asked.silent.is_empty(), "{asked:?}");
        let listed = replica
            .admin()
            .list_targets(ListTargetsRequest::default())
            .await;
        let listed = listed.unwrap().into_inner();
        assert_eq!(listed.others.len(), 2);
        assert!(
            listed
                .others
                .iter()
                .all(|other| other.targets[0].id == "main")
        );
        for name in &names {
            let request = GetStatusRequest {
                replica: name.clone(),
            };
            let one = replica
                .admin()
                .get_status(request)
                .await
                .unwrap()
                .into_inner();
            assert_eq!(shown(&one), std::slice::from_ref(name));
        }
        let unknown = GetStatusRequest {
            replica: "nobody".to_owned(),
        };
        let refused = replica.admin().get_status(unknown).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::NotFound);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_shows_all_replicas_and_one_by_its_name() {
    let _room = room().await;
    let Some(replicas) = Replicas::three("").await else {
        return;
    };
    let mut names = Vec::new();
    let mut made = BTreeMap::new();
    for replica in &replicas.all {
        names.push(name(replica).await);
        calls(replica, 5, &mut made).await;
    }
    let scraped = metrics(&replicas.all[0].admin_address).await;
    let alone = format!("relight_fleet_peer_up{{replica=\"{}\"}} 1", names[1]);
    for series in ["relight_fleet_replicas 3", alone.as_str()] {
        assert!(
            scraped.lines().any(|line| line == series),
            "{series}: {scraped}"
        );
    }
    let address = format!("http://{}", replicas.all[1].address);
    for command in [
        &["status"][..],
        &["circuits"],
        &["top", "--tables", "1", "--interval", "1s"],
        &["invocations", "--limit", "7"],
    ] {
        let with = async |more: &[&str]| {
            let address = ["--address", &address];
            run(&[command, &address[..], more].concat()).await
        };
        let ran = with(&[]).await;
        let named = names
            .iter()
            .filter(|name| ran.out.contains(name.as_str()))
            .count();
        let is_paged = command[0] == "invocations";
        assert!(
            named == 3 || is_paged && named == 2,
            "{}{}",
            ran.out,
            ran.err
        );
        let ran = with(&["--replica", &names[2]]).await;
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(
            !ran.out.contains(&names[0]) && !ran.out.contains(&names[1]),
            "{}",
            ran.out
        );
        let ran = with(&["--replica", "nobody"]).await;
        assert!(
            ran.code != Some(0) && ran.err.contains("nobody"),
            "{}",
            ran.err
        );
    }
    let ids = async |limit: &str| -> Vec<String> {
        let listing = ["invocations", "--limit", limit, "--output", "json"];
        let ran = run(&[&listing, &["--address", &address][..]].concat()).await;
        ran.out
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
            .map(|line| line["invocation_id"].as_str().unwrap().to_owned())
            .collect()
    };
    let newest: Vec<String> = made.keys().rev().cloned().collect();
    assert_eq!(ids("7").await, newest[..7]);
    assert_eq!(ids("100").await, newest);
}
