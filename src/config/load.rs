//! From a file and the environment to a configuration that is complete and checked, or to everything wrong with them.
//!
//! The steps: read, resolve references, lay settings over what they inherit from, decode, complete, read the files
//! that are named, check. Faults of all steps are told together.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use sha2::{Digest as _, Sha256};

use super::{
    Config, check, decode, discover,
    environment::{self, Environment},
    fault::{ConfigFaults, Fault},
    inherit,
    secret::Secret,
    tree::{self, Node, Value},
};

/// A larger file is none that anybody wrote.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A configuration as it was loaded.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Complete and checked.
    pub config: Config,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The other files that it names: keys and certificates. A change of theirs is a change of the configuration.
    pub named_files: Vec<PathBuf>,
    /// The environment variables by which providers were found that are not in the file.
    pub found: Vec<&'static str>,
    /// Two configurations with the same fingerprint are the same, the contents of named files included.
    pub fingerprint: String,
}

/// Loads the file, or what works without one.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(path: Option<&Path>, environment: &dyn Environment) -> Result<Loaded, ConfigFaults> {
    let text = match path {
        None => String::new(),
        Some(path) => match read(path) {
            Ok(text) => text,
            Err(reason) => {
                return Err(ConfigFaults { file: Some(path.to_path_buf()), faults: vec![Fault::new("", reason)] });
            }
        },
    };
    load_text(&text, path, environment)
}

/// Loads a text as if it were the file at `path`, to which file names inside it are relative.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_text(text: &str, path: Option<&Path>, environment: &dyn Environment) -> Result<Loaded, ConfigFaults> {
    let mut faults = Vec::new();
    let loaded = load_collecting(text, path, environment, &mut faults);
    match (ConfigFaults::of(path, faults), loaded) {
        (None, Some(loaded)) => Ok(loaded),
        (Some(faults), _) => Err(faults),
        // Nothing is dropped without a fault; said plainly in case that is ever untrue.
        (None, None) => {
            let faults = vec![Fault::new("", "cannot be read")];
            Err(ConfigFaults { file: path.map(Path::to_path_buf), faults })
        }
    }
}

fn load_collecting(
    text: &str,
    path: Option<&Path>,
    environment: &dyn Environment,
    faults: &mut Vec<Fault>,
) -> Option<Loaded> {
    let mut tree = tree::parse(text, faults)?;
    if !matches!(tree.value, Value::Map(_) | Value::Null) {
        faults.push(Fault::new("", "is no map of settings").at(tree.at));
        return None;
    }
    let unresolved = tree.clone();
    environment::expand(&mut tree, environment, faults);
    let mut fingerprint = Sha256::new();
    fingerprint.update(format!("{tree:?}"));
    // What failed to resolve is known to be written, so that nobody calls it missing.
    let written = Node { value: merge_missing(tree.value.clone(), unresolved.value), ..tree.clone() };
    inherit::lay_over(&mut tree);
    let mut config: Config = decode::decode(&mut tree, faults)?;

    let order: Vec<String> =
        written.get("targets").map_or(&[][..], Node::members).iter().map(|(name, _)| name.clone()).collect();
    let found = discover::complete(&mut config, environment, &order);
    let base = path.and_then(Path::parent).unwrap_or(Path::new(""));
    let mut named = NamedFiles { base, contents: &mut fingerprint, files: Vec::new(), faults: Vec::new() };
    named.read_all(&mut config);
    let (named_files, unreadable) = (named.files, named.faults);
    check::check(&config, &written, unreadable, faults);
    let fingerprint = format!("{:x}", fingerprint.finalize());
    Some(Loaded { config, file: path.map(Path::to_path_buf), named_files, found, fingerprint })
}

/// The resolved value, with what was taken out of it put back unresolved.
fn merge_missing(resolved: Value, unresolved: Value) -> Value {
    match (resolved, unresolved) {
        (Value::Map(mut members), Value::Map(before)) => {
            for (name, node) in before {
                match members.iter_mut().find(|(kept, _)| *kept == name) {
                    Some((_, kept)) => {
                        let value = std::mem::replace(&mut kept.value, Value::Null);
                        kept.value = merge_missing(value, node.value);
                    }
                    None => members.push((name, node)),
                }
            }
            Value::Map(members)
        }
        (resolved, _) => resolved,
    }
}

/// Reads the files that a configuration names, relative to its own.
struct NamedFiles<'a> {
    base: &'a Path,
    contents: &'a mut Sha256,
    files: Vec<PathBuf>,
    faults: Vec<(String, String)>,
}

impl NamedFiles<'_> {
    fn read_all(&mut self, config: &mut Config) {
        for (name, provider) in &mut config.providers {
            let path = format!("providers.{name}");
            self.read_key(&path, provider.api_key_file.as_mut(), &mut provider.api_key);
            for (credential, keys) in &mut provider.credentials {
                let path = format!("{path}.credentials.{credential}");
                self.read_key(&path, keys.api_key_file.as_mut(), &mut keys.api_key);
            }
        }
        if let Some(tls) = &mut config.server.tls {
            self.probe("server.tls.cert_file", &mut tls.cert_file);
            self.probe("server.tls.key_file", &mut tls.key_file);
            if let Some(authorities) = &mut tls.client_ca_file {
                self.probe("server.tls.client_ca_file", authorities);
            }
        }
    }

    /// A key in a file becomes a key like any other.
    fn read_key(&mut self, path: &str, file: Option<&mut PathBuf>, key: &mut Option<Secret>) {
        let Some(file) = file else { return };
        let at = format!("{path}.api_key_file");
        if key.is_some() {
            self.faults.push((at, "is given beside api_key; keep one of them".to_owned()));
        } else if let Some(text) = self.probe(&at, file) {
            if text.trim().is_empty() {
                self.faults.push((at, "names an empty file".to_owned()));
            }
            *key = Some(Secret::new(text.trim()));
        }
    }

    fn probe(&mut self, path: &str, file: &mut PathBuf) -> Option<String> {
        if file.as_os_str().is_empty() {
            return None;
        }
        *file = self.base.join(&*file);
        self.files.push(file.clone());
        match read(file) {
            Ok(text) => {
                self.contents.update(&text);
                Some(text)
            }
            Err(reason) => {
                self.faults.push((path.to_owned(), reason));
                None
            }
        }
    }
}

/// The text of a file; the reason reads on after the file's name.
fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("is larger than {}", crate::domain::units::format_bytes(MAX_FILE_BYTES)));
    }
    Ok(text)
}
