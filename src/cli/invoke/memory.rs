//! Record of the invocation that the command follows, so that `--resume` finds it after the command
//! was killed.
//!
//! One small file in the user's state directory, readable by the user alone. It holds a resume
//! token, which is a name and not a permission, but no question, answer or key.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use crate::config::{Environment as _, ProcessEnvironment};

/// File, if there is a place for one.
#[derive(Debug)]
pub(super) struct Memory {
    file: Option<PathBuf>,
}

// === impl Memory ===

impl Memory {
    /// The user's own (`$XDG_STATE_HOME/relight`, else `~/.local/state/relight`).
    pub(super) fn of_user() -> Self {
        let set = |name: &str| {
            ProcessEnvironment
                .var(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
        Self {
            file: state.map(|state| state.join("relight").join("resume-token")),
        }
    }

    /// Keeps a token in place of an earlier one. That it cannot be kept only means that it cannot
    /// be found later.
    pub(super) fn keep(&self, token: &str) {
        if let Some(file) = &self.file {
            let _ = write_privately(file, token);
        }
    }

    /// Returns the token that was kept last.
    pub(super) fn recall(&self) -> Option<String> {
        let token = fs::read_to_string(self.file.as_ref()?).ok()?;
        Some(token.trim().to_owned()).filter(|token| !token.is_empty())
    }

    /// Forgets it: the invocation has ended.
    pub(super) fn forget(&self) {
        if let Some(file) = &self.file {
            let _ = fs::remove_file(file);
        }
    }
}

fn write_privately(file: &PathBuf, token: &str) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    // A reader, or a kill in between, finds the old token or the new one, but not a part.
    let new = file.with_extension(format!("{}.new", std::process::id()));
    let written = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .and_then(|mut open| {
            open.write_all(token.as_bytes())
                .and_then(|()| open.sync_data())
        })
        .and_then(|()| fs::rename(&new, file));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_for_its_user_alone_until_it_is_forgotten() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep").join("resume-token");
        let memory = Memory {
            file: Some(file.clone()),
        };
        assert_eq!(memory.recall(), None);
        memory.keep("token-1, which is long");
        memory.keep("token-2");
        assert_eq!(memory.recall().as_deref(), Some("token-2"));
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let left: Vec<_> = fs::read_dir(file.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(left, [file], "nothing but the token is left");
        memory.forget();
        assert_eq!(memory.recall(), None);
    }
}
