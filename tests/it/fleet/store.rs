//! Every store keeps, forgets, hints and leases alike.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use relight_fleet::{
    FleetStore, MemoryStore, PostgresStore, ProbeLease, RecordWrite, StoredRecord, ValkeyStore,
};

use super::*;

/// The stores that can be had here, with what keeps them running.
fn stores() -> Vec<(Arc<dyn FleetStore>, Option<FleetServer>)> {
    let mut stores: Vec<(Arc<dyn FleetStore>, Option<FleetServer>)> =
        vec![(Arc::new(MemoryStore::default()), None)];
    for server in FleetServer::all() {
        let store: Arc<dyn FleetStore> = match &server {
            FleetServer::Postgres(_) => Arc::new(PostgresStore::at(&server.url()).unwrap()),
            FleetServer::Valkey(_) => Arc::new(ValkeyStore::at(&server.url()).unwrap()),
        };
        stores.push((store, Some(server)));
    }
    stores
}

fn write(subject: &str, owner: &str, epoch: u64, value: Option<&str>) -> RecordWrite {
    RecordWrite {
        subject: subject.to_owned(),
        owner: owner.to_owned(),
        epoch,
        value: value.map(str::to_owned),
        lifetime: Some(Duration::from_mins(1)),
    }
}

async fn values(store: &dyn FleetStore) -> Vec<(String, String, u64, String)> {
    let mut records: Vec<_> = store
        .snapshot()
        .await
        .unwrap()
        .into_iter()
        .map(|record: StoredRecord| {
            assert!(record.age < Duration::from_secs(30), "{record:?}");
            (record.subject, record.owner, record.epoch, record.value)
        })
        .collect();
    records.sort();
    records
}

fn kept(subject: &str, owner: &str, epoch: u64, value: &str) -> (String, String, u64, String) {
    (
        subject.to_owned(),
        owner.to_owned(),
        epoch,
        value.to_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn of_one_subject_and_owner_the_record_of_the_largest_number_is_kept_until_its_time_is_over()
{
    let _room = room().await;
    for (store, _server) in stores() {
        let engine = store.engine();
        let all = [
            write("gate:1", "a", 1, Some("one")),
            write("gate:1", "b", 1, Some("two")),
            write("word:1", "", 7, Some("a word")),
        ];
        store.publish(&all, true).await.unwrap();
        let newer = [
            write("gate:1", "a", 3, Some("three")),
            write("word:1", "", 7, Some("another word")),
        ];
        store.publish(&newer, true).await.unwrap();
        // What comes late changes nothing.
        let late = [write("gate:1", "a", 2, Some("late"))];
        store.publish(&late, false).await.unwrap();
        let expected = [
            kept("gate:1", "a", 3, "three"),
            kept("gate:1", "b", 1, "two"),
            kept("word:1", "", 7, "a word"),
        ];
        assert_eq!(values(&*store).await, expected, "{engine}");
        store
            .publish(&[write("gate:1", "b", 2, None)], true)
            .await
            .unwrap();
        let short = RecordWrite {
            lifetime: Some(Duration::from_millis(200)),
            ..write("gate:1", "a", 4, Some("short"))
        };
        let good = RecordWrite {
            lifetime: None,
            ..write("word:2", "", 1, Some("for good"))
        };
        store.publish(&[short, good], true).await.unwrap();
        tokio::time::sleep(Duration::from_millis(400)).await;
        let expected = [
            kept("word:1", "", 7, "a word"),
            kept("word:2", "", 1, "for good"),
        ];
        assert_eq!(values(&*store).await, expected, "{engine}");
        // One whose time is over is no hindrance, whatever its number.
        let again = [write("gate:1", "a", 1, Some("again"))];
        store.publish(&again, true).await.unwrap();
        assert!(
            values(&*store)
                .await
                .contains(&kept("gate:1", "a", 1, "again"))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everyone_who_listens_is_told_that_something_changed() {
    let _room = room().await;
    for (store, _server) in stores() {
        let engine = store.engine();
        let heard = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let mut listening = tokio::task::JoinSet::new();
        for count in &heard {
            let store = Arc::clone(&store);
            let count = Arc::clone(count);
            listening.spawn(async move {
                let error = store
                    .listen(&move || {
                        count.fetch_add(1, Ordering::SeqCst);
                    })
                    .await;
                panic!("{error}");
            });
        }
        let all_heard = |more: usize| heard.iter().all(|it| it.load(Ordering::SeqCst) >= more);
        until(engine, async || all_heard(1)).await;
        store
            .publish(&[write("gate:2", "a", 1, Some("one"))], true)
            .await
            .unwrap();
        until(engine, async || all_heard(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_place_is_held_by_one_until_it_is_given_back_or_its_time_is_over() {
    let _room = room().await;
    for (store, _server) in stores() {
        let engine = store.engine();
        let lease = |holder: usize, lifetime: Duration| ProbeLease {
            name: "circuit:1".to_owned(),
            holder: holder.to_string(),
            places: 2,
            lifetime,
        };
        let long = Duration::from_mins(1);
        // Many at once: what says at most is tested concurrently.
        let mut asking = tokio::task::JoinSet::new();
        for holder in 0..20 {
            let store = Arc::clone(&store);
            let lease = lease(holder, long);
            asking.spawn(async move { (holder, store.lease(&lease).await.unwrap()) });
        }
        let all = asking.join_all().await;
        let holders: Vec<usize> = all
            .iter()
            .filter(|(_, taken)| taken.is_ok())
            .map(|(holder, _)| *holder)
            .collect();
        assert_eq!(holders.len(), 2, "{engine}");
        for (_, denied) in all.iter().filter(|(_, taken)| taken.is_err()) {
            assert!(denied.unwrap_err() <= long, "{engine}");
        }
        store.release(&lease(holders[0], long)).await.unwrap();
        let short = Duration::from_millis(200);
        assert_eq!(store.lease(&lease(100, short)).await.unwrap(), Ok(()));
        assert!(store.lease(&lease(101, short)).await.unwrap().is_err());
        tokio::time::sleep(2 * short).await;
        assert_eq!(store.lease(&lease(102, long)).await.unwrap(), Ok(()));
        // Whose place was taken after its time was over cannot give it back.
        store.release(&lease(100, long)).await.unwrap();
        assert!(store.lease(&lease(103, long)).await.unwrap().is_err());
        let other = ProbeLease {
            name: "circuit:2".to_owned(),
            ..lease(104, long)
        };
        assert_eq!(store.lease(&other).await.unwrap(), Ok(()));
    }
}
