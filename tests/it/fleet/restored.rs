//! A store that is restored from a backup, whose clock is set back, or that is moved.

use std::sync::Arc;

use relight_fleet::{FleetStore, PostgresStore, ProbeLease, RecordWrite, ValkeyStore};
use sqlx::{Connection as _, PgConnection};

use super::*;

async fn run(cluster: &Cluster, sql: &str) {
    let mut connection = PgConnection::connect(cluster.url()).await.unwrap();
    let sql = sqlx::AssertSqlSafe(sql.to_owned());
    sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
}

/// Keeps what the store has.
async fn back_up(server: &FleetServer) {
    match server {
        FleetServer::Postgres(cluster) => {
            run(cluster, "CREATE TABLE backup AS TABLE relight_fleet").await;
        }
        FleetServer::Valkey(valkey) => {
            let copied = valkey.ask("COPY relight:fleet:1:records backup");
            assert_eq!(copied.as_deref(), Some(":1"));
        }
    }
}

/// Has the store contain what was kept, and nothing else.
async fn restore(server: &FleetServer) {
    match server {
        FleetServer::Postgres(cluster) => {
            let sql = "DELETE FROM relight_fleet; INSERT INTO relight_fleet SELECT * FROM backup";
            run(cluster, sql).await;
        }
        FleetServer::Valkey(valkey) => {
            let copied = valkey.ask("COPY backup relight:fleet:1:records REPLACE");
            assert_eq!(copied.as_deref(), Some(":1"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backup_opens_nothing_again_while_replicas_live_and_its_words_hold_for_new_ones() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let mut replicas = Replicas::on(server, "circuit: { open_base: 60s }").await;
        // A circuit that is open, then a word: the backup has both.
        replicas.upstream.otherwise(Reply::status(500));
        while state_of(&target(&replicas.all[0]).await) == CircuitState::Closed {
            failure(&replicas.all[0]).await;
        }
        let is_open = |target: &Target| state_of(target) == CircuitState::Open;
        replicas.until_all(0, "open", is_open).await;
        force(&replicas.all[0], CircuitForce::Open).await;
        let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedOpen;
        replicas.until_all(0, "forced", is_forced).await;
        back_up(&replicas.cluster).await;
        replicas.upstream.otherwise(Reply::text("Well again."));
        let reset = || ResetCircuitRequest {
            target: "main".to_owned(),
        };
        replicas.all[1]
            .admin()
            .reset_circuit(reset())
            .await
            .unwrap();
        let is_closed = |target: &Target| state_of(target) == CircuitState::Closed;
        replicas.until_all(0, "reset", is_closed).await;

        restore(&replicas.cluster).await;
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(2) {
            for replica in &replicas.all {
                let state = state_of(&target(replica).await);
                assert_eq!(state, CircuitState::Closed, "{engine}: it came back");
                assert!(is_answered(replica).await, "{engine}");
            }
        }
        let late = replicas.start_another().await;
        known_to_live(late, 4).await;
        assert!(is_closed(&target(late).await), "{engine}: the last word");

        // Nobody is left who knows better than the backup: what it has of operators is shown.
        replicas.all.clear();
        restore(&replicas.cluster).await;
        for _ in 0..2 {
            replicas.start_another().await;
        }
        for replica in &replicas.all {
            known_to_live(replica, 2).await;
        }
        replicas
            .until_all(0, "the word of the backup", is_forced)
            .await;
        let shown = status(&replicas.all[0]).await.reasons;
        let named = shown
            .iter()
            .any(|it| it.message.contains("maintenance at noon"));
        assert!(named, "{engine}: {shown:?}");
        replicas.all[0]
            .admin()
            .reset_circuit(reset())
            .await
            .unwrap();
        replicas.until_all(0, "reset", is_closed).await;
        assert!(is_answered(&replicas.all[1]).await, "{engine}");
    }
}

/// Moves all times that the store keeps an hour ahead, as if its clock were set back by one.
async fn set_clock_back(server: &FleetServer) {
    match server {
        FleetServer::Postgres(cluster) => {
            let sql = "UPDATE relight_fleet SET written = written + INTERVAL '1 hour', expires = expires + INTERVAL '1 hour'; \
                       UPDATE relight_fleet_lease SET expires = expires + INTERVAL '1 hour'";
            run(cluster, sql).await;
        }
        FleetServer::Valkey(valkey) => {
            let records = "local all = redis.call('HGETALL', KEYS[1]) for i = 1, #all, 2 do \
                           local e, w, x, v = string.match(all[i + 1], '^(%d+) (%d+) (%d+) (.*)$') \
                           if x ~= '0' then x = string.format('%.0f', x + 3600000) end \
                           redis.call('HSET', KEYS[1], all[i], e .. ' ' .. string.format('%.0f', w + 3600000) .. ' ' .. x .. ' ' .. v) end";
            let places = "local all = redis.call('ZRANGE', KEYS[1], 0, -1) for i = 1, #all do \
                          redis.call('ZINCRBY', KEYS[1], 3600000, all[i]) end redis.call('PERSIST', KEYS[1])";
            valkey.ask(&format!("EVAL \"{records}\" 1 relight:fleet:1:records"));
            valkey.ask(&format!(
                "EVAL \"{places}\" 1 relight:fleet:1:lease:circuit:1"
            ));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_clock_was_set_back_no_record_and_no_place_of_before_is_kept_but_words() {
    let _room = room().await;
    for server in FleetServer::all() {
        let engine = server.engine();
        let url = server.url();
        let store: Arc<dyn FleetStore> = match &server {
            FleetServer::Postgres(_) => Arc::new(PostgresStore::at(&url).unwrap()),
            FleetServer::Valkey(_) => Arc::new(ValkeyStore::at(&url).unwrap()),
        };
        let lease = |holder: &str| ProbeLease {
            name: "circuit:1".to_owned(),
            holder: holder.to_owned(),
            places: 1,
            lifetime: Duration::from_secs(10),
        };
        let write = |subject: &str, epoch: u64, lifetime| RecordWrite {
            subject: subject.to_owned(),
            owner: "a".to_owned(),
            epoch,
            value: Some(epoch.to_string()),
            lifetime,
        };
        let brief = Some(Duration::from_secs(15));
        let writes = [write("gate:1", 7, brief), write("word:1", 7, None)];
        store.publish(&writes, true).await.unwrap();
        assert_eq!(store.lease(&lease("one")).await.unwrap(), Ok(()));
        assert!(store.lease(&lease("two")).await.unwrap().is_err());
        set_clock_back(&server).await;
        let kept = store.snapshot().await.unwrap();
        let kept: Vec<&str> = kept.iter().map(|record| &*record.subject).collect();
        assert_eq!(kept, ["word:1"], "{engine}");
        assert_eq!(
            store.lease(&lease("two")).await.unwrap(),
            Ok(()),
            "{engine}"
        );
        assert!(store.lease(&lease("three")).await.unwrap().is_err());
        // A record of before is no hindrance, whatever its number.
        store
            .publish(&[write("gate:1", 1, brief)], true)
            .await
            .unwrap();
        assert_eq!(store.snapshot().await.unwrap().len(), 2, "{engine}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_moves_by_a_rolling_restart_costs_no_call_and_is_one_again_at_the_end() {
    let _room = room().await;
    let moves = [
        (FleetServer::postgres(), FleetServer::valkey()),
        (FleetServer::valkey(), FleetServer::postgres()),
    ];
    for (old, new) in moves {
        let (Some(old), Some(new)) = (old, new) else {
            return;
        };
        let mut replicas = Replicas::on(old, "").await;
        let moved = replicas.config.replace(&replicas.cluster.url(), &new.url());
        replicas.config = moved;
        for place in 0..3 {
            let mut ended = replicas.all.remove(0);
            assert_eq!(ended.terminate().await, Some(0));
            replicas.start_another().await;
            for replica in &replicas.all {
                assert!(is_answered(replica).await, "after {place}");
            }
        }
        for replica in &replicas.all {
            known_to_live(replica, 3).await;
        }
        force(&replicas.all[2], CircuitForce::Open).await;
        let is_forced = |target: &Target| state_of(target) == CircuitState::ForcedOpen;
        replicas.until_all(0, "forced", is_forced).await;
    }
}
