//! A store that fails does not affect calls that do not need it, and is used again as soon as it is
//! back.

use std::{path::PathBuf, time::Duration};

use relight::internals::grpc::v1::{
    GetStatusRequest, Invocation, InvokeWithRecoveryRequest, ServiceState,
    invoke_with_recovery_response::Outcome, watch_recovery_request::Start,
};
use sqlx::{Connection as _, Executor as _, SqliteConnection};
use tokio::time::{Instant, sleep, timeout};

use crate::support::{
    cluster::Cluster,
    process::Process,
    relight::{Relight, asking},
    room::room,
    targets::one_target,
    upstream::{Reply, Upstream},
};

/// Longest time from the end of a fault until everything works again, with room for a busy machine.
const BACK_WITHIN: Duration = Duration::from_secs(4);

struct World {
    relight: Relight,
    _upstream: Upstream,
}

impl World {
    async fn on(store: &str) -> Self {
        let upstream = Upstream::start().await;
        upstream.otherwise(Reply::text("Fine."));
        let relight = Relight::start(&format!(
            "{}journal: {{ store: {store:?} }}\n",
            one_target(&upstream)
        ))
        .await;
        Self {
            relight,
            _upstream: upstream,
        }
    }

    /// How long a call takes that needs no journal.
    async fn plain(&self) -> Duration {
        let began = Instant::now();
        assert!(matches!(
            self.relight.ask("Hello?").await.outcome,
            Some(Outcome::Completion(_))
        ));
        began.elapsed()
    }

    /// Whether a call is served that needs the journal; it ends soon in any case.
    async fn promised(&self, invocation: Invocation) -> bool {
        let began = Instant::now();
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        };
        let served = self.relight.recovery().invoke_with_recovery(request).await;
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}: {served:?}",
            began.elapsed()
        );
        served.is_ok_and(|response| {
            matches!(response.into_inner().outcome, Some(Outcome::Completion(_)))
        })
    }

    async fn all_promised(&self, round: &str) -> bool {
        let thread = Invocation {
            thread_id: "t-1".to_owned(),
            ..asking("On a thread?")
        };
        let once = Invocation {
            request_id: format!("r-{round}"),
            ..asking("Once?")
        };
        self.promised(thread).await && self.promised(once).await
    }

    async fn state(&self) -> ServiceState {
        self.relight
            .admin()
            .get_status(GetStatusRequest::default())
            .await
            .unwrap()
            .into_inner()
            .state()
    }

    /// Waits until this state is reported.
    async fn becomes(&self, state: ServiceState) {
        let reached = async {
            while self.state().await != state {
                sleep(Duration::from_millis(50)).await;
            }
        };
        timeout(Duration::from_secs(8), reached)
            .await
            .unwrap_or_else(|_| panic!("{state:?} is not reported"));
    }

    /// What is promised of a store in which `fault` happens and which `mend` makes well again.
    async fn survives<A, B>(
        &self,
        what: &str,
        fault: impl AsyncFnOnce() -> A,
        mend: impl AsyncFnOnce(A) -> B,
    ) {
        let mut watch = self.relight.watch(Start::Live(true)).await;
        let broken = fault().await;
        // Found without any call, by writes.
        self.becomes(ServiceState::Degraded).await;
        watch.until_journal("store_lost").await;
        for _ in 0..5 {
            let took = self.plain().await;
            assert!(
                took < Duration::from_millis(800),
                "{what}: {took:?} for a call that needs no journal"
            );
        }
        assert!(
            !self.all_promised(what).await,
            "{what}: a promise that cannot be kept"
        );
        mend(broken).await;
        let began = Instant::now();
        while !self
            .all_promised(&format!("{what}-{:?}", began.elapsed()))
            .await
        {
            assert!(
                began.elapsed() < BACK_WITHIN,
                "{what}: calls that need the journal still fail"
            );
            sleep(Duration::from_millis(50)).await;
        }
        watch.until_journal("store_found").await;
        self.becomes(ServiceState::Healthy).await;
        self.plain().await;
    }
}

/// A file in a folder of its own.
fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("journal.db");
    (folder, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_stopped_or_frozen_holds_up_no_call_that_needs_none() {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let world = World::on(cluster.url()).await;
    world
        .survives(
            "stopped",
            async || cluster.stop(),
            async |()| cluster.start_again(),
        )
        .await;
    world
        .survives(
            "frozen",
            async || cluster.freeze(),
            async |()| cluster.thaw(),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_takes_no_writes_is_not_healthy() {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else {
        return;
    };
    let world = World::on(cluster.url()).await;
    let set = async |value: &'static str| {
        let mut connection = sqlx::PgConnection::connect(cluster.url()).await.unwrap();
        connection
            .execute("SET default_transaction_read_only = off")
            .await
            .unwrap();
        connection.execute(value).await.unwrap();
        connection.execute("SELECT pg_reload_conf()").await.unwrap();
    };
    let read_only = "ALTER SYSTEM SET default_transaction_read_only = on";
    let writable = "ALTER SYSTEM SET default_transaction_read_only = off";
    world
        .survives(
            "read-only",
            async || set(read_only).await,
            async |()| set(writable).await,
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_locked_or_removed_holds_up_no_call_that_needs_none() {
    let (_folder, file) = file();
    let world = World::on(&format!("sqlite:{}", file.display())).await;
    let lock = async || {
        let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&file);
        let mut other = SqliteConnection::connect_with(&options).await.unwrap();
        other.execute("PRAGMA busy_timeout = 10000").await.unwrap();
        other.execute("BEGIN IMMEDIATE").await.unwrap();
        other
    };
    world
        .survives("locked", lock, async |mut other: SqliteConnection| {
            other.execute("COMMIT").await.unwrap()
        })
        .await;
    let remove = async || {
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{ending}", file.display()));
        }
        // A folder in its place, so that it cannot be created again.
        std::fs::create_dir(&file).unwrap();
    };
    world
        .survives("removed", remove, async |()| {
            std::fs::remove_dir(&file).unwrap();
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_removed_is_made_anew_by_itself() {
    let (_folder, file) = file();
    let world = World::on(&format!("sqlite:{}", file.display())).await;
    assert!(world.all_promised("before").await);
    std::fs::remove_file(&file).unwrap();
    let anew = async {
        while !file.exists() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(8), anew)
        .await
        .expect("it is made anew");
    world.becomes(ServiceState::Healthy).await;
    assert!(world.all_promised("after").await);
    // Writes into a file that has no name succeed, and must not hide that it is gone.
    std::fs::remove_file(&file).unwrap();
    let anew = async {
        while !file.exists() {
            world.plain().await;
        }
    };
    timeout(Duration::from_secs(15), anew)
        .await
        .expect("it is made anew while calls are recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_at_a_configured_path_is_its_owner_s_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, file) = file();
    std::fs::write(&file, "").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    for file in [file, folder.path().join("new.db")] {
        let world = World::on(&format!("sqlite:{}", file.display())).await;
        world.plain().await;
        for ending in ["", "-wal", "-shm"] {
            let path = format!("{}{ending}", file.display());
            assert_eq!(
                std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
                0o600,
                "{path}"
            );
        }
    }
}

/// A file system of four megabytes, mounted for as long as it is held.
struct SmallDisk(tempfile::TempDir);

// === impl SmallDisk ===

impl SmallDisk {
    /// Mounts it; `None` where that is not allowed.
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "relight-test"])
            .arg(folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        mount
            .is_ok_and(|status| status.success())
            .then_some(Self(folder))
    }

    /// Leaves not one free byte.
    fn fill(&self) {
        use std::io::Write as _;
        let mut file = std::fs::File::create(self.0.path().join("full")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }

    fn free(&self) {
        std::fs::remove_file(self.0.path().join("full")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, since the server may still have the file open.
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_was_full_needs_no_restart() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("SKIPPED: a file system can only be mounted by root");
        return;
    };
    let world = World::on(&format!(
        "sqlite:{}",
        disk.0.path().join("journal.db").display()
    ))
    .await;
    assert!(world.all_promised("before").await);
    world
        .survives("full", async || disk.fill(), async |()| disk.free())
        .await;
    world
        .survives("full again", async || disk.fill(), async |()| disk.free())
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_overwritten_in_place_is_noticed_and_used_again_when_it_is_whole() {
    use std::os::unix::fs::FileExt as _;
    let (_folder, file) = file();
    let world = World::on(&format!("sqlite:{}", file.display())).await;
    assert!(world.all_promised("before").await);
    let write = |bytes: &[u8]| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(&file)
            .unwrap()
            .write_all_at(bytes, 0)
            .unwrap();
    };
    let overwrite = async || {
        let before = std::fs::read(&file).unwrap();
        write(&vec![b'x'; before.len()]);
        before
    };
    world
        .survives("overwritten", overwrite, async |before: Vec<u8>| {
            write(&before);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_must_not_be_written_is_not_healthy() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_folder, file) = file();
    let world = World::on(&format!("sqlite:{}", file.display())).await;
    let set =
        |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    set(0o444);
    if std::fs::OpenOptions::new().write(true).open(&file).is_ok() {
        return again_without_the_rights_of_root(
            "ownership_store::a_file_that_must_not_be_written_is_not_healthy",
        )
        .await;
    }
    world
        .survives("read-only", async || set(0o444), async |()| set(0o600))
        .await;
}

/// Without its lock, other programs that read the file remove the log of it when they close it, and
/// what the server writes from then on is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_never_loses_its_lock_on_the_file() {
    use std::os::unix::fs::MetadataExt as _;
    let (_folder, file) = file();
    let server = Process::start(&format!(
        "journal: {{ store: \"sqlite:{}\" }}\n",
        file.display()
    ))
    .await;
    let (holder, inode) = (server.pid(), std::fs::metadata(&file).unwrap().ino());
    let is_locked = || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        locks.lines().any(|lock| {
            lock.contains(&format!(" {holder} ")) && lock.contains(&format!(":{inode} "))
        })
    };
    assert!(is_locked(), "it has not begun to use the file");
    // It looks at its file meanwhile.
    for _ in 0..25 {
        sleep(Duration::from_millis(200)).await;
        assert!(is_locked(), "another process can take the file");
    }
}

/// Runs a test in a process to which modes of files apply, which they do not to root.
async fn again_without_the_rights_of_root(test: &str) {
    let mut command = tokio::process::Command::new("setpriv");
    command
        .args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"])
        .kill_on_drop(true);
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test]);
    let ran = timeout(Duration::from_mins(2), command.output())
        .await
        .unwrap()
        .unwrap();
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && out.contains("1 passed"),
        "{out}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}
