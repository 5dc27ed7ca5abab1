//! Reloads the configuration while calls run: a changed file is loaded, checked, and applied or
//! rejected.
//!
//! Directories are watched rather than files, because editors replace files and Kubernetes swaps a
//! link beside them (`directories`); every two seconds they are checked to be the same ones. SIGHUP
//! has the same effect if nothing can be watched, and its result is always logged. A file that
//! is invalid, that would weaken the running server (`weaken`) or that the server rejects changes
//! nothing and is reported; later ones are compared with the configuration in force. Reloading neither ends
//! the process nor affects running calls: they keep the configuration that they started with.

mod directories;
mod weaken;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{sync::mpsc, task::JoinSet};

use self::directories::Directories;
use super::{
    Config,
    changes::changed_paths,
    environment::Environment,
    fault::{ConfigFaults, Fault},
    load::{Loaded, NamedFile, load},
    restart::needs_restart,
};

/// Time for which a file must be quiet before it is read: writers need several steps.
const QUIET: Duration = Duration::from_millis(250);

/// After this time the file is read even if the directory keeps changing.
const IMPATIENT: Duration = Duration::from_secs(2);

/// Interval at which the watched directories are checked for others in their place.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The running server, as the receiver of a changed configuration.
pub trait Reloadable: Send + 'static {
    /// Applies a configuration as a whole.
    ///
    /// # Errors
    /// The reason why it cannot be applied; the old one then stays in force as a whole.
    fn apply(&self, config: &Config) -> Result<(), String>;

    /// Reports what became of a change, after that.
    fn report(&self, reload: Reload);
}

/// The result of a change.
#[derive(Debug, Clone)]
pub enum Reload {
    /// The new configuration is in force.
    Applied {
        /// Settings that are read at the start only and differ from what was in force then.
        needs_restart: Vec<String>,
        /// The paths of all settings that changed, or whose file did; a secret that was exchanged
        /// within the configuration's own file is not among them.
        changed: Vec<String>,
    },
    /// The old configuration stays in force.
    Rejected(ConfigFaults),
}

/// Follows the file of a configuration until it is dropped.
#[derive(Debug)]
pub struct ConfigWatcher {
    // Aborts the task when it is dropped.
    _task: JoinSet<()>,
}

/// The state of the watching task.
struct FileFollower<S> {
    /// Configuration in force, except for settings that are read at the start only.
    loaded: Loaded,
    /// Configuration in force at the start.
    at_start: Config,
    /// Addresses at which callers reach the server.
    bound: Vec<SocketAddr>,
    /// The faults of the file when it was last read; reported once.
    rejected: Option<ConfigFaults>,
    environment: Arc<dyn Environment>,
    server: S,
    directories: Directories,
}

/// Reason for which the file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadBecause {
    /// Something changed in its place.
    OfChange,
    /// An operator wants it, and waits for the result.
    OfHangup,
}

// === impl ConfigWatcher ===

impl ConfigWatcher {
    /// Begins to follow the file of `loaded` and the files that it names, and applies each change
    /// to `server`. `bound` are the addresses at which callers reach it: what would open one of
    /// them is refused. Must be called within a tokio runtime.
    pub fn start(
        loaded: Loaded,
        bound: Vec<SocketAddr>,
        environment: Arc<dyn Environment>,
        server: impl Reloadable,
    ) -> Self {
        // One place is enough: what matters is that something happened, not how often.
        let (something_happened, happenings) = mpsc::channel(1);
        let directories = Directories::new(something_happened);
        let at_start = loaded.config.clone();
        let mut follower = FileFollower {
            loaded,
            at_start,
            bound,
            rejected: None,
            environment,
            server,
            directories,
        };
        follower.watch_directories(None);
        // From here on SIGHUP no longer ends the process.
        let hangup = Hangup::new();
        let mut task = JoinSet::new();
        task.spawn(async move { follower.follow(happenings, hangup).await });
        Self { _task: task }
    }
}

// === impl FileFollower ===

impl<S: Reloadable> FileFollower<S> {
    async fn follow(&mut self, mut happenings: mpsc::Receiver<()>, mut hangup: Hangup) {
        loop {
            let because = tokio::select! {
                happening = happenings.recv() => {
                    if happening.is_none() {
                        return;
                    }
                    let quiet = async { while let Ok(Some(())) = tokio::time::timeout(QUIET, happenings.recv()).await {} };
                    let _ = tokio::time::timeout(IMPATIENT, quiet).await;
                    ReadBecause::OfChange
                }
                () = hangup.recv() => ReadBecause::OfHangup,
                () = tokio::time::sleep(LOOK_AGAIN) => {
                    self.directories.look_again();
                    continue;
                }
            };
            self.reload(because).await;
        }
    }

    async fn reload(&mut self, because: ReadBecause) {
        let file = self.loaded.file.clone();
        let environment = Arc::clone(&self.environment);
        let given = self.loaded.given;
        let loading = tokio::task::spawn_blocking(move || {
            load(file.as_deref(), environment.as_ref()).map(|loaded| loaded.listening_at(given))
        });
        let mut refused = None;
        match loading.await {
            Ok(Ok(next))
                if next.fingerprint == self.loaded.fingerprint && self.rejected.is_none() =>
            {
                if because == ReadBecause::OfHangup {
                    tracing::info!(
                        "the configuration was read again after SIGHUP: nothing has changed"
                    );
                }
            }
            Ok(Ok(next)) => match self.apply(&next) {
                Ok(()) => self.take(next),
                Err(faults) => {
                    self.reject(faults, because);
                    refused = Some(next);
                }
            },
            Ok(Err(faults)) => self.reject(faults, because),
            // Only a shutdown of the runtime cancels it; then this task ends as well.
            Err(_) => return,
        }
        // Links may lead elsewhere now, and what is wrong may be put right in a file that it names.
        self.watch_directories(refused.as_ref());
    }

    /// Applies it, unless it would weaken the running server or the server rejects it.
    fn apply(&self, next: &Loaded) -> Result<(), ConfigFaults> {
        let file = next.file.as_deref();
        let weakenings =
            ConfigFaults::of(file, weaken::weakenings(&self.loaded, &self.bound, next));
        weakenings.map_or(Ok(()), Err)?;
        let refused = self.server.apply(&next.config).err();
        ConfigFaults::of(
            file,
            refused
                .map(|reason| Fault::new("", reason))
                .into_iter()
                .collect(),
        )
        .map_or(Ok(()), Err)
    }

    /// Judges later changes by this configuration, which is in force now, and reports it.
    fn take(&mut self, next: Loaded) {
        let mut changed = changed_paths(&self.loaded.config, &next.config);
        changed.extend(changed_files(&self.loaded.named_files, &next.named_files));
        changed.sort_unstable();
        changed.dedup();
        let needs_restart = needs_restart(&self.at_start, &next.config);
        self.loaded = next;
        self.loaded.warn();
        self.rejected = None;
        self.server.report(Reload::Applied {
            needs_restart,
            changed,
        });
    }

    /// Reports these faults, unless they are the ones that were reported last: then they are logged
    /// for who wants to know.
    fn reject(&mut self, faults: ConfigFaults, because: ReadBecause) {
        if self.rejected.as_ref() != Some(&faults) {
            self.rejected = Some(faults.clone());
            self.server.report(Reload::Rejected(faults));
        } else if because == ReadBecause::OfHangup {
            let reasons = faults.to_string().lines().collect::<Vec<_>>().join("; ");
            tracing::warn!(
                "the configuration was read again after SIGHUP and is still refused, the old one stays in force: {reasons}"
            );
        }
    }

    /// Watches the directories of the files in force, and of those that were refused.
    fn watch_directories(&mut self, refused: Option<&Loaded>) {
        let named = [Some(&self.loaded), refused]
            .into_iter()
            .flatten()
            .flat_map(|loaded| &loaded.named_files);
        self.directories.watch(
            self.loaded
                .file
                .iter()
                .chain(named.map(|named| &named.file)),
        );
    }
}

/// SIGHUP, if the platform has it.
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

/// Returns the settings whose file holds something else than before.
fn changed_files<'a>(
    old: &'a [NamedFile],
    new: &'a [NamedFile],
) -> impl Iterator<Item = String> + 'a {
    let changed = |named: &&NamedFile| {
        old.iter()
            .any(|before| before.setting == named.setting && before.digest != named.digest)
    };
    new.iter()
        .filter(changed)
        .map(|named| named.setting.clone())
}

#[cfg(test)]
mod tests;
