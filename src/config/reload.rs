//! Reloading while calls run: a change of the file is loaded, checked, and takes the place of the old one, or does not.
//!
//! Directories are watched and not files, because editors replace files and Kubernetes swaps a link beside them.
//! SIGHUP does the same where nothing can be watched. A file that is invalid, or that would weaken the running server
//! (`weaken`), changes nothing and is reported. It never ends the process, and it never touches calls that run: they keep the configuration that they began with.

mod weaken;

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use super::{
    Config,
    changes::changed_paths,
    environment::Environment,
    fault::ConfigFaults,
    load::{Loaded, NamedFile, load},
    restart::needs_restart,
};

/// How long a file must be quiet before it is read: writers need several steps.
const QUIET: Duration = Duration::from_millis(250);

/// After this it is read even if the directory is never quiet.
const IMPATIENT: Duration = Duration::from_secs(2);

/// What became of a change.
#[derive(Debug, Clone)]
pub enum Reload {
    /// The new configuration is in force.
    Applied {
        /// The new configuration.
        config: Arc<Config>,
        /// Settings that were changed too but are read at the start only.
        needs_restart: Vec<String>,
        /// The paths of all settings that changed, or whose file did; a secret that was exchanged within the
        /// configuration's own file is not among them.
        changed: Vec<String>,
    },
    /// The old configuration stays in force.
    Rejected(ConfigFaults),
}

/// Follows the file of a configuration until it is dropped.
#[derive(Debug)]
pub struct ConfigWatcher {
    config: watch::Receiver<Arc<Config>>,
    // Aborts the task when it is dropped.
    _task: JoinSet<()>,
}

/// What the task owns.
struct Follower<F> {
    loaded: Loaded,
    /// Where callers reach the server.
    bound: Vec<SocketAddr>,
    /// What was wrong with the file when it was last read; told once.
    rejected: Option<ConfigFaults>,
    environment: Arc<dyn Environment>,
    sender: watch::Sender<Arc<Config>>,
    report: F,
    directories: Directories,
}

/// The directories that are watched; they say that something happened, not what.
struct Directories {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

// === impl ConfigWatcher ===

impl ConfigWatcher {
    /// Begins to follow the file of `loaded` and the files that it names; each change is told to `report`, after the new
    /// configuration is in force. `bound` are the addresses at which callers reach the server: what would open one of
    /// them is refused. Must be called within a tokio runtime.
    pub fn start(
        loaded: Loaded,
        bound: Vec<SocketAddr>,
        environment: Arc<dyn Environment>,
        report: impl Fn(Reload) + Send + 'static,
    ) -> Self {
        let (sender, config) = watch::channel(Arc::new(loaded.config.clone()));
        // One place is enough: what matters is that something happened, not how often.
        let (something_happened, happenings) = mpsc::channel(1);
        let directories = Directories::new(something_happened.clone());
        let mut follower = Follower { loaded, bound, rejected: None, environment, sender, report, directories };
        follower.watch_directories();
        // What was written after the file was loaded and before it was watched would be missed; so it is read again.
        let _ = something_happened.try_send(());
        let mut task = JoinSet::new();
        task.spawn(async move {
            // Kept, so that the channel stays open where no directory can be watched.
            let _open = something_happened;
            follower.follow(happenings).await;
        });
        Self { config, _task: task }
    }

    /// The configuration in force, and its changes.
    #[must_use]
    pub fn config(&self) -> watch::Receiver<Arc<Config>> {
        self.config.clone()
    }
}

// === impl Follower ===

impl<F: Fn(Reload)> Follower<F> {
    async fn follow(&mut self, mut happenings: mpsc::Receiver<()>) {
        let mut hangup = Hangup::new();
        loop {
            tokio::select! {
                happening = happenings.recv() => {
                    if happening.is_none() {
                        return;
                    }
                    let quiet = async { while let Ok(Some(())) = tokio::time::timeout(QUIET, happenings.recv()).await {} };
                    let _ = tokio::time::timeout(IMPATIENT, quiet).await;
                }
                () = hangup.recv() => {}
            }
            self.reload().await;
        }
    }

    async fn reload(&mut self) {
        let (file, environment) = (self.loaded.file.clone(), Arc::clone(&self.environment));
        let loading = tokio::task::spawn_blocking(move || load(file.as_deref(), environment.as_ref()));
        match loading.await.map(|loaded| loaded.and_then(|loaded| self.permitted(loaded))) {
            Ok(Ok(loaded)) if loaded.fingerprint == self.loaded.fingerprint && self.rejected.is_none() => {}
            Ok(Ok(loaded)) => {
                let mut changed = changed_paths(&self.loaded.config, &loaded.config);
                changed.extend(changed_files(&self.loaded.named_files, &loaded.named_files));
                changed.sort_unstable();
                changed.dedup();
                let needs_restart = needs_restart(&self.loaded.config, &loaded.config, &changed);
                let config = Arc::new(loaded.config.clone());
                self.loaded = loaded;
                self.loaded.warn();
                self.rejected = None;
                self.watch_directories();
                self.sender.send_replace(Arc::clone(&config));
                (self.report)(Reload::Applied { config, needs_restart, changed });
            }
            Ok(Err(faults)) if self.rejected.as_ref() == Some(&faults) => {}
            Ok(Err(faults)) => {
                self.rejected = Some(faults.clone());
                (self.report)(Reload::Rejected(faults));
            }
            // Only a shutdown of the runtime cancels it; then this task ends as well.
            Err(_) => {}
        }
    }

    /// Refuses what would weaken the running server.
    fn permitted(&self, next: Loaded) -> Result<Loaded, ConfigFaults> {
        let faults = weaken::weakenings(&self.loaded, &self.bound, &next);
        ConfigFaults::of(next.file.as_deref(), faults).map_or(Ok(next), Err)
    }

    fn watch_directories(&mut self) {
        let named = self.loaded.named_files.iter().map(|named| &named.file);
        let files = self.loaded.file.iter().chain(named);
        self.directories.watch(files.map(|file| directory_of(file)).collect());
    }
}

// === impl Directories ===

impl Directories {
    fn new(something_happened: mpsc::Sender<()>) -> Self {
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // Reading is no change, and loading reads; an error means that changes may have been missed.
            if event.is_ok_and(|event| event.kind.is_access()) {
                return;
            }
            // A full channel says already what this would say.
            let _ = something_happened.try_send(());
        });
        Self { watcher: watcher.ok(), watched: BTreeSet::new() }
    }

    /// Watches these directories and no others; those that cannot be watched are left to SIGHUP.
    fn watch(&mut self, wanted: BTreeSet<PathBuf>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(gone);
        }
        let mut kept: BTreeSet<PathBuf> = self.watched.intersection(&wanted).cloned().collect();
        for directory in wanted {
            if !kept.contains(&directory) && watcher.watch(&directory, RecursiveMode::NonRecursive).is_ok() {
                kept.insert(directory);
            }
        }
        self.watched = kept;
    }
}

/// SIGHUP, where there is such a thing.
struct Hangup {
    #[cfg(unix)]
    signal: Option<tokio::signal::unix::Signal>,
}

impl Hangup {
    fn new() -> Self {
        Self {
            #[cfg(unix)]
            signal: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
        }
    }

    async fn recv(&mut self) {
        #[cfg(unix)]
        if let Some(signal) = &mut self.signal
            && signal.recv().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}

fn directory_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory.to_path_buf(),
        Some(_) | None => PathBuf::from("."),
    }
}

/// The settings whose file holds something else than before.
fn changed_files<'a>(old: &'a [NamedFile], new: &'a [NamedFile]) -> impl Iterator<Item = String> + 'a {
    let changed =
        |named: &&NamedFile| old.iter().any(|before| before.setting == named.setting && before.digest != named.digest);
    new.iter().filter(changed).map(|named| named.setting.clone())
}

#[cfg(test)]
mod tests;
