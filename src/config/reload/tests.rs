//! Tests of `reload`, one for each guarantee.

use std::{
    fs,
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::*;
use crate::config::GivenEnvironment;

/// Long enough for a busy machine; a test that passes never waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    watcher: ConfigWatcher,
    server: Server,
    reports: UnboundedReceiver<Reload>,
}

/// Accepts every configuration except those with a certain limit.
#[derive(Clone)]
struct Server {
    in_force: Arc<Mutex<Config>>,
    reports: UnboundedSender<Reload>,
}

const UNLIKED: u32 = 666;

impl Reloadable for Server {
    fn apply(&self, config: &Config) -> Result<(), String> {
        if config.admission.max_in_flight == UNLIKED {
            return Err("cannot be built".to_owned());
        }
        *self.in_force.lock() = config.clone();
        Ok(())
    }

    fn report(&self, reload: Reload) {
        let _ = self.reports.send(reload);
    }
}

fn start(file: &Path) -> Running {
    start_with(file, Arc::new(GivenEnvironment::new()))
}

fn start_with(file: &Path, environment: Arc<dyn Environment>) -> Running {
    let loaded = load(Some(file), environment.as_ref()).unwrap();
    let (sender, reports) = mpsc::unbounded_channel();
    let server = Server {
        in_force: Arc::new(Mutex::new(loaded.config.clone())),
        reports: sender,
    };
    Running {
        watcher: ConfigWatcher::start(loaded, Vec::new(), environment, server.clone()),
        server,
        reports,
    }
}

impl Running {
    fn limit(&self) -> u32 {
        self.server.in_force.lock().admission.max_in_flight
    }

    fn key(&self) -> String {
        self.server.in_force.lock().providers["p"]
            .key("default")
            .unwrap()
            .expose()
            .to_owned()
    }

    async fn report(&mut self) -> Reload {
        tokio::time::timeout(PATIENCE, self.reports.recv())
            .await
            .expect("a report in time")
            .unwrap()
    }

    /// What became of a change that is accepted: what waits for a restart, and what changed.
    async fn applied(&mut self) -> (Vec<String>, Vec<String>) {
        match self.report().await {
            Reload::Applied {
                needs_restart,
                changed,
            } => (needs_restart, changed),
            Reload::Rejected(faults) => panic!("{faults}"),
        }
    }

    async fn rejection(&mut self) -> ConfigFaults {
        match self.report().await {
            Reload::Rejected(faults) => faults,
            Reload::Applied { changed, .. } => panic!("{changed:?}"),
        }
    }
}

#[tokio::test]
async fn a_changed_file_is_in_force_and_an_invalid_one_leaves_the_last_good_one() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relight.yaml");
    fs::write(&file, "admission: { max_in_flight: 1 }\n").unwrap();
    let mut running = start(&file);
    assert_eq!(running.limit(), 1);

    fs::write(
        &file,
        "admission: { max_in_flight: 2 }\nserver: { listen: \"127.0.0.1:7000\" }\njournal: { retention: 2h }\n",
    )
    .unwrap();
    match running.report().await {
        Reload::Applied { needs_restart, .. } => {
            assert_eq!(needs_restart, ["journal.retention", "server.listen"]);
        }
        Reload::Rejected(faults) => panic!("{faults}"),
    }
    assert_eq!(running.limit(), 2);

    fs::write(&file, "admision: 3\n").unwrap();
    let expected = format!(
        "{}:1:1: admision: unknown field; did you mean `admission`?",
        file.display()
    );
    assert_eq!(running.rejection().await.to_string(), expected);
    assert_eq!(running.limit(), 2);

    fs::write(&file, "admission: { max_in_flight: 4 }\n").unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.limit(), 4);
}

#[tokio::test]
async fn what_the_server_refuses_is_reported_once_and_later_changes_are_judged_by_what_is_in_force()
{
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relight.yaml");
    fs::write(&file, "admission: { max_in_flight: 1 }\n").unwrap();
    let mut running = start(&file);
    let unliked =
        format!("admission: {{ max_in_flight: {UNLIKED} }}\njournal: {{ retention: 2h }}\n");
    fs::write(&file, &unliked).unwrap();
    assert_eq!(
        running.rejection().await.to_string(),
        format!("{}: cannot be built", file.display())
    );
    // Read again, with nothing new to report.
    fs::write(&file, &unliked).unwrap();
    tokio::time::sleep(QUIET * 3).await;
    fs::write(
        &file,
        "admission: { max_in_flight: 2 }\njournal: { retention: 2h }\n",
    )
    .unwrap();
    match running.report().await {
        Reload::Applied {
            needs_restart,
            changed,
        } => {
            assert_eq!(needs_restart, ["journal.retention"]);
            assert_eq!(changed, ["admission.max_in_flight", "journal.retention"]);
        }
        Reload::Rejected(faults) => panic!("{faults}"),
    }
    assert_eq!(running.limit(), 2);
}

#[tokio::test]
async fn a_restart_is_needed_as_long_as_a_setting_differs_from_what_was_in_force_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relight.yaml");
    let text = |limit: u32, retention: &str, header: &str| {
        format!(
            "admission: {{ max_in_flight: {limit} }}\njournal: {{ retention: {retention} }}\n\
             telemetry: {{ otlp_headers: {{ authorization: {header} }} }}\n"
        )
    };
    fs::write(&file, text(1, "1h", "one")).unwrap();
    let mut running = start(&file);
    let retention = "journal.retention";
    let headers = "telemetry.otlp_headers";
    for (changed_file, waiting, changed) in [
        (text(1, "2h", "one"), vec![retention], vec![retention]),
        (
            text(2, "2h", "one"),
            vec![retention],
            vec!["admission.max_in_flight"],
        ),
        (text(2, "2h", "two"), vec![retention, headers], vec![]),
        (text(2, "1h", "two"), vec![headers], vec![retention]),
        (text(2, "1h", "one"), vec![], vec![]),
    ] {
        fs::write(&file, &changed_file).unwrap();
        let applied = running.applied().await;
        assert_eq!(
            (&applied.0, &applied.1),
            (&names(&waiting), &names(&changed)),
            "{changed_file}"
        );
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// An environment of one variable that counts how often it is read, and thereby how often a file is
/// loaded that refers to it.
#[derive(Default)]
struct CountingEnvironment(AtomicUsize);

impl Environment for CountingEnvironment {
    fn var(&self, name: &str) -> Option<String> {
        if name != "LIMIT" {
            return None;
        }
        self.0.fetch_add(1, Relaxed);
        Some("7".to_owned())
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_neighbour_that_is_written_all_the_time_causes_no_loading_and_delays_none() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relight.yaml");
    fs::write(&file, "admission: { max_in_flight: \"${LIMIT}\" }\n").unwrap();
    let environment = Arc::new(CountingEnvironment::default());
    let mut running = start_with(&file, environment.clone());
    let mut neighbour = fs::File::create(directory.path().join("journal.db")).unwrap();
    // The file is read once more after the watch began, and once because of the new file.
    tokio::time::sleep(IMPATIENT).await;
    let before = environment.0.load(Relaxed);
    for _ in 0..60 {
        neighbour.write_all(b"a page").unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(
        environment.0.load(Relaxed),
        before,
        "loads while a neighbour was written"
    );

    fs::write(&file, "admission: { max_in_flight: 8 }\n").unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.limit(), 8);
}

#[cfg(unix)]
#[tokio::test]
async fn a_mounted_config_map_is_followed_through_the_swap_of_its_link() {
    use std::os::unix::fs::symlink;
    // As the kubelet lays it out: the file is a link through `..data`, which is replaced by a
    // rename.
    let mount = tempfile::tempdir().unwrap();
    let at = |name: &str| mount.path().join(name);
    for (version, text) in [
        ("..1", "admission: { max_in_flight: 1 }\n"),
        ("..2", "admission: { max_in_flight: 2 }\n"),
    ] {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("relight.yaml"), text).unwrap();
    }
    symlink("..1", at("..data")).unwrap();
    symlink("..data/relight.yaml", at("relight.yaml")).unwrap();
    let mut running = start(&at("relight.yaml"));
    assert_eq!(running.limit(), 1);

    symlink("..2", at("..data_tmp")).unwrap();
    fs::rename(at("..data_tmp"), at("..data")).unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.limit(), 2);
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_behind_links_is_followed_where_it_is_and_where_a_changed_link_leads() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let limited = |limit: u32| format!("admission: {{ max_in_flight: {limit} }}\n");
    for directory in ["links", "first", "second"] {
        fs::create_dir(at(directory)).unwrap();
    }
    for directory in ["first", "second"] {
        fs::write(at(directory).join("c.yaml"), limited(1)).unwrap();
    }
    // A link to a directory, and in it a link to a file.
    symlink("first", at("current")).unwrap();
    symlink("../current/c.yaml", at("links/c.yaml")).unwrap();
    let mut running = start(&at("links/c.yaml"));
    fs::write(at("first/c.yaml"), limited(2)).unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.limit(), 2);

    symlink("second", at("next")).unwrap();
    fs::rename(at("next"), at("current")).unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.limit(), 1);

    fs::write(at("second/c.yaml"), limited(3)).unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.limit(), 3);
}

/// Returns a configuration whose one provider has its key in this file.
fn with_key_in(key: &Path) -> String {
    let key = key.display().to_string();
    format!(
        "providers: {{ p: {{ dialect: openai_chat, api_key_file: {key:?} }} }}\n\
         targets: {{ t: {{ provider: p, model: m }} }}\n"
    )
}

#[tokio::test]
async fn a_key_in_a_file_of_its_own_is_followed_too() {
    let directory = tempfile::tempdir().unwrap();
    let secrets = tempfile::tempdir().unwrap();
    let key = secrets.path().join("key");
    fs::write(&key, "old\n").unwrap();
    let file = directory.path().join("relight.yaml");
    fs::write(&file, with_key_in(&key)).unwrap();
    let mut running = start(&file);
    assert_eq!(running.key(), "old");

    fs::write(&key, "new\n").unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.key(), "new");
}

#[cfg(unix)]
#[tokio::test]
async fn a_key_behind_a_link_is_followed_when_it_is_written_and_when_it_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for directory in ["conf", "links", "vault"] {
        fs::create_dir(at(directory)).unwrap();
    }
    fs::write(at("vault/key"), "first\n").unwrap();
    std::os::unix::fs::symlink(at("vault/key"), at("links/key")).unwrap();
    fs::write(at("conf/relight.yaml"), with_key_in(&at("links/key"))).unwrap();
    let mut running = start(&at("conf/relight.yaml"));
    assert_eq!(running.key(), "first");

    fs::write(at("vault/key"), "second\n").unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.key(), "second");

    fs::write(at("vault/new"), "third\n").unwrap();
    fs::rename(at("vault/new"), at("vault/key")).unwrap();
    assert!(matches!(running.report().await, Reload::Applied { .. }));
    assert_eq!(running.key(), "third");
}

#[tokio::test]
async fn dropping_the_watcher_ends_its_task() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("relight.yaml");
    fs::write(&file, "admission: { max_in_flight: 1 }\n").unwrap();
    let Running {
        watcher,
        server,
        mut reports,
    } = start(&file);
    drop((watcher, server));
    // The task owned the other sender of the reports.
    assert!(
        tokio::time::timeout(PATIENCE, reports.recv())
            .await
            .expect("an end in time")
            .is_none()
    );
}
