//! The directories that are watched; they report that something changed, not what.
//!
//! A file that is reached through links becomes another one when any of them changes, so that the
//! directory of each link is watched beside that of the file itself, and found anew after every
//! change. What takes the place of a whole directory changes nothing in it, so that each is also
//! checked from time to time to be the same one.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::SystemTime,
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind},
};
use tokio::sync::mpsc;

/// Most links on the way to a file, as Linux has it: more are a circle.
const MAX_LINKS: usize = 40;

/// The directories that are watched.
pub(super) struct Directories {
    watcher: Option<RecommendedWatcher>,
    files: BTreeSet<PathBuf>,
    watched: BTreeMap<PathBuf, DirectoryIdentity>,
    something_happened: mpsc::Sender<()>,
}

/// Identity of a directory, as against another one that takes its path: its numbers in the file
/// system, if there are such, and its time of creation, since the numbers of a directory that was
/// deleted are given to new ones.
type DirectoryIdentity = ((u64, u64), Option<SystemTime>);

// === impl Directories ===

impl Directories {
    pub(super) fn new(something_happened: mpsc::Sender<()>) -> Self {
        let sender = something_happened.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            // An error means that changes may have been missed.
            if event.is_ok_and(|event| !completes_a_change(event.kind)) {
                return;
            }
            // A full channel already holds this notification.
            let _ = sender.try_send(());
        });
        Self {
            watcher: watcher.ok(),
            files: BTreeSet::new(),
            watched: BTreeMap::new(),
            something_happened,
        }
    }

    /// Watches the directories of these files and no others; those that cannot be watched are left
    /// to SIGHUP.
    pub(super) fn watch<'a>(&mut self, files: impl Iterator<Item = &'a PathBuf>) {
        self.files = files.cloned().collect();
        self.look_again();
    }

    /// Watches the places where the same files are now, if these differ from before.
    pub(super) fn look_again(&mut self) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let directories: BTreeSet<PathBuf> = self
            .files
            .iter()
            .flat_map(|file| directories_of(file))
            .collect();
        let identified =
            |directory: PathBuf| identity(&directory).map(|identity| (directory, identity));
        let wanted: BTreeMap<PathBuf, DirectoryIdentity> =
            directories.into_iter().filter_map(identified).collect();
        self.watched.retain(|directory, identity| {
            let is_wanted = wanted.get(directory) == Some(identity);
            if !is_wanted {
                let _ = watcher.unwatch(directory);
            }
            is_wanted
        });
        for (directory, identity) in wanted {
            if !self.watched.contains_key(&directory)
                && watcher
                    .watch(&directory, RecursiveMode::NonRecursive)
                    .is_ok()
            {
                self.watched.insert(directory, identity);
                // What was written after the files were loaded and before this would be missed; so
                // they are read again.
                let _ = self.something_happened.try_send(());
            }
        }
    }
}

/// Returns whether a file may have other content from now on. Reading is not a change, and loading
/// reads. Linux reports when a written file is closed, so that a file beside the configuration that
/// stays open and is written all the time, such as the journal's, causes no loading.
fn completes_a_change(event: EventKind) -> bool {
    match event {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Modify(ModifyKind::Data(_)) => !cfg!(target_os = "linux"),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}

/// Returns the directories that decide what a file holds: its own, and that of each link on the way
/// to it. Each is named by its path without links, since a directory with two names would be
/// watched under one of them only.
fn directories_of(file: &Path) -> BTreeSet<PathBuf> {
    let mut holders = BTreeSet::new();
    let mut ahead = reversed_parts(file);
    let mut reached = PathBuf::new();
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        let next = reached.join(part);
        match fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                holders.insert(reached.clone());
                ahead.extend(reversed_parts(&target));
            }
            Ok(_) | Err(_) => reached = next,
        }
    }
    holders.extend(reached.parent().map(Path::to_path_buf));
    let named = |directory: PathBuf| {
        if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory
        }
    };
    holders
        .into_iter()
        .filter_map(|directory| fs::canonicalize(named(directory)).ok())
        .collect()
}

/// Returns the identity of the directory at this path; `None` if it does not exist.
fn identity(directory: &Path) -> Option<DirectoryIdentity> {
    let metadata = fs::metadata(directory).ok()?;
    #[cfg(unix)]
    let numbers = {
        use std::os::unix::fs::MetadataExt as _;
        (metadata.dev(), metadata.ino())
    };
    #[cfg(not(unix))]
    let numbers = (0, 0);
    Some((numbers, metadata.created().ok()))
}

/// Returns the parts of a path, the last one first.
fn reversed_parts(path: &Path) -> Vec<PathBuf> {
    path.components()
        .rev()
        .map(|part| PathBuf::from(part.as_os_str()))
        .collect()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_where_it_is_and_where_each_link_on_the_way_to_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        let at = |name: &str| root.join(name);
        for directory in ["plain", "links", "releases", "releases/1", "vault"] {
            fs::create_dir(at(directory)).unwrap();
        }
        fs::write(at("plain/c.yaml"), "").unwrap();
        fs::write(at("vault/c.yaml"), "").unwrap();
        symlink("../releases/1", at("links/current")).unwrap();
        symlink(at("vault/c.yaml"), at("releases/1/c.yaml")).unwrap();
        symlink("circle", at("links/circle")).unwrap();
        for (file, expected) in [
            ("plain/c.yaml", &["plain"][..]),
            ("plain/missing.yaml", &["plain"]),
            ("plain/../plain/c.yaml", &["plain"]),
            ("links/current/c.yaml", &["links", "releases/1", "vault"]),
            ("links/circle", &["links"]),
            ("missing/c.yaml", &[]),
        ] {
            assert_eq!(
                directories_of(&at(file)),
                expected.iter().map(|name| at(name)).collect(),
                "{file}"
            );
        }
        assert_eq!(
            directories_of(Path::new("Cargo.toml")).len(),
            1,
            "a name alone is in the working directory"
        );
    }
}
