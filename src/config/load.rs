//! Loads a complete and checked configuration from a file and the environment, or returns all of
//! its faults.
//!
//! The steps: read, resolve references, lay settings over what they inherit from, decode, complete,
//! read the files that are named, check. Faults of all steps are reported together.

use std::{
    io::Read as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{
    Config, Secret, certificates, check,
    connection::{ClientTlsConfig, ProxyConfig},
    decode, discover,
    environment::{self, Environment},
    fault::{ConfigFaults, Fault},
    inherit, lenient, otlp, retired,
    server::TlsConfig,
    tree::{self, Node, Value},
};
use crate::provider::Variables;

/// A larger file is not a configuration.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// A loaded configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Complete and checked.
    pub config: Config,
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// The other files that it names: keys and certificates. A change of theirs is a change of the
    /// configuration.
    pub named_files: Vec<NamedFile>,
    /// The environment variables by which providers were found that are not in the file.
    pub found: Vec<&'static str>,
    /// Invalid settings that were ignored, as the file allows, so that their defaults are in force.
    pub left_out: Vec<Fault>,
    /// Settings of earlier versions that the file still has, and what became of them.
    pub retired: Vec<Fault>,
    /// Two configurations with the same fingerprint are the same, the contents of named files
    /// included.
    pub fingerprint: String,
    /// If set, the file names targets, so that none had to be found.
    pub has_targets: bool,
    /// The file as it was read.
    pub(super) text: Secret,
    /// Addresses that were given beside it.
    pub(super) given: GivenAddresses,
}

/// Addresses from the command line, at which the server listens whatever the file contains.
#[derive(Debug, Clone, Copy, Default)]
pub struct GivenAddresses {
    /// In place of `server.listen`.
    pub listen: Option<SocketAddr>,
    /// In place of `server.admin_listen`.
    pub admin_listen: Option<SocketAddr>,
}

/// A file that a setting names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// The path of the setting.
    pub setting: String,
    /// Path of the file.
    pub file: PathBuf,
    /// SHA-256 of what it holds; none if it cannot be read.
    pub digest: Option<[u8; 32]>,
}

// === impl Loaded ===

impl Loaded {
    /// The same with these addresses in place of its own.
    #[must_use]
    pub fn listening_at(mut self, given: GivenAddresses) -> Self {
        let server = &mut self.config.server;
        server.listen = given.listen.unwrap_or(server.listen);
        server.admin_listen = given.admin_listen.unwrap_or(server.admin_listen);
        Self { given, ..self }
    }

    /// Warns of each setting that was left out, and of each that is of an earlier version.
    pub fn warn(&self) {
        for fault in &self.retired {
            tracing::warn!(
                setting = fault.path,
                "setting of an earlier version: {fault}"
            );
        }
        for fault in &self.left_out {
            tracing::warn!(
                setting = fault.path,
                "invalid setting left out, its default is in force: {fault}"
            );
        }
    }
}

/// Loads the file, or what works without one.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load(path: Option<&Path>, environment: &dyn Environment) -> Result<Loaded, ConfigFaults> {
    let text = match path {
        None => String::new(),
        Some(path) => match read(path) {
            Ok(text) if !text.trim().is_empty() => text,
            failed => {
                let reason = match failed {
                    Err(_) if matches!(path.try_exists(), Ok(false)) => "no such file".to_owned(),
                    Err(reason) => reason,
                    Ok(_) => "is empty; write {} for the defaults".to_owned(),
                };
                return Err(ConfigFaults::of_whole(Some(path), reason));
            }
        },
    };
    load_text(&text, path, environment)
}

/// Loads a text as if it were the file at `path`, to which file names inside it are relative.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_text(
    text: &str,
    path: Option<&Path>,
    environment: &dyn Environment,
) -> Result<Loaded, ConfigFaults> {
    let mut left_out: Vec<Fault> = Vec::new();
    let mut faults = Vec::new();
    let mut is_lenient = false;
    let mut loaded = load_collecting(
        text,
        path,
        environment,
        &left_out,
        &mut is_lenient,
        &mut faults,
    );
    while is_lenient && lenient::can_leave_out(&faults, &left_out) {
        left_out.append(&mut faults);
        loaded = load_collecting(
            text,
            path,
            environment,
            &left_out,
            &mut is_lenient,
            &mut faults,
        );
    }
    ConfigFaults::result(path, faults, loaded).map(|loaded| Loaded { left_out, ..loaded })
}

/// Reads a file that is not a configuration, but is written like one.
///
/// # Errors
/// Returns everything that is wrong, at once.
#[cfg(feature = "lab")]
pub fn read_text<T: for<'de> serde::Deserialize<'de>>(
    text: &str,
    path: &Path,
) -> Result<T, ConfigFaults> {
    let mut faults = Vec::new();
    let read =
        tree::parse(text, &mut faults).and_then(|mut tree| decode::decode(&mut tree, &mut faults));
    ConfigFaults::result(Some(path), faults, read)
}

fn load_collecting(
    text: &str,
    path: Option<&Path>,
    environment: &dyn Environment,
    left_out: &[Fault],
    is_lenient: &mut bool,
    faults: &mut Vec<Fault>,
) -> Option<Loaded> {
    let mut tree = tree::parse(text, faults)?;
    for fault in left_out {
        tree.remove(&fault.path);
    }
    if !matches!(tree.value, Value::Map(_) | Value::Null) {
        faults.push(Fault::new("", "is no map of settings").at(tree.at));
        return None;
    }
    let retired = retired::replace(&mut tree, faults);
    let unresolved = tree.clone();
    environment::expand(&mut tree, environment, faults);
    let mut fingerprint = Sha256::new();
    fingerprint.update(format!("{tree:?}"));
    // What failed to resolve counts as written, so that it is not reported as missing.
    let written = Node {
        value: merge_missing(tree.value.clone(), unresolved.value),
        ..tree.clone()
    };
    inherit::lay_over_preset(&mut tree);
    *is_lenient = lenient::is_wanted(&tree);
    inherit::lay_over(&mut tree);
    let mut config: Config = decode::decode(&mut tree, faults)?;

    let order: Vec<String> = written
        .get("targets")
        .map_or(&[][..], Node::members)
        .iter()
        .map(|(name, _)| name.clone())
        .collect();
    let found = discover::complete(&mut config, environment, &order);
    let base = path.and_then(Path::parent).unwrap_or(Path::new(""));
    config.tools.inherit(environment);
    config.fleet.complete(environment);
    for identity in config
        .providers
        .values_mut()
        .filter_map(|provider| provider.identity.as_mut())
    {
        identity.loaded = Variables::of(|name| environment.var(name));
    }
    let mut named = NamedFiles {
        base,
        contents: &mut fingerprint,
        files: Vec::new(),
        faults: Vec::new(),
    };
    named.read_all(&mut config);
    let named_files = named.files;
    let mut more = named.faults;
    faults.extend(otlp::complete(&mut config.telemetry, environment));
    more.extend(config.fleet.faults());
    check::check(&config, &written, more, faults);
    let fingerprint = format!("{:x}", fingerprint.finalize());
    let file = path.map(Path::to_path_buf);
    let text = Secret::new(text);
    let has_targets = !order.is_empty();
    let left_out = Vec::new();
    let given = GivenAddresses::default();
    Some(Loaded {
        config,
        file,
        named_files,
        found,
        left_out,
        retired,
        fingerprint,
        has_targets,
        text,
        given,
    })
}

/// Returns the resolved value, with what was taken out of it put back unresolved.
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
    files: Vec<NamedFile>,
    faults: Vec<(String, String)>,
}

impl NamedFiles<'_> {
    fn read_all(&mut self, config: &mut Config) {
        for (name, provider) in &mut config.providers {
            let path = format!("providers.{name}");
            self.read_key(&path, provider.api_key_file.as_mut(), &mut provider.api_key);
            let file = provider.api_keys_file.as_mut();
            self.read_pool(&path, file, &mut provider.api_keys);
            self.read_connection(&path, provider.proxy.as_mut(), provider.tls.as_mut());
            for (credential, keys) in &mut provider.credentials {
                let path = format!("{path}.credentials.{credential}");
                self.read_key(&path, keys.api_key_file.as_mut(), &mut keys.api_key);
            }
        }
        for (name, server) in &mut config.tools.servers {
            let path = format!("tools.servers.{name}");
            self.read_key(&path, server.api_key_file.as_mut(), &mut server.api_key);
            self.read_connection(&path, server.proxy.as_mut(), server.tls.as_mut());
        }
        if let Some(tls) = &mut config.server.tls {
            self.read_certificates(tls);
        }
        let fleet = &mut config.fleet;
        self.read_secret("fleet", "key", fleet.key_file.as_mut(), &mut fleet.key);
        if let Some(file) = &mut fleet.ca_file {
            self.probe("fleet.ca_file", file);
        }
    }

    /// Certificates become what connections are served with.
    fn read_certificates(&mut self, tls: &mut TlsConfig) {
        let chain = self.probe(certificates::CERT_FILE, &mut tls.cert_file);
        let key = self.probe(certificates::KEY_FILE, &mut tls.key_file);
        let authorities = tls
            .client_ca_file
            .as_mut()
            .map(|file| self.probe(certificates::CLIENT_CA_FILE, file));
        let (Some(chain), Some(key)) = (chain, key) else {
            return;
        };
        if authorities == Some(None) {
            return;
        }
        match certificates::server_settings(&chain, &key, authorities.flatten().as_deref()) {
            Ok(settings) => tls.loaded = Some(Arc::new(settings)),
            Err((setting, reason)) => self.faults.push((setting.to_owned(), reason)),
        }
    }

    /// The files of a connection to an upstream become what connections are made with.
    fn read_connection(
        &mut self,
        path: &str,
        proxy: Option<&mut ProxyConfig>,
        tls: Option<&mut ClientTlsConfig>,
    ) {
        if let Some(proxy) = proxy {
            let file = proxy.credentials_file.as_mut();
            self.read_secret(
                &format!("{path}.proxy"),
                "credentials",
                file,
                &mut proxy.credentials,
            );
        }
        let Some(tls) = tls else { return };
        let mut of = |name: &str, file: &mut Option<PathBuf>| {
            file.as_mut()
                .map(|file| self.probe(&format!("{path}.tls.{name}"), file))
        };
        let authorities = of("ca_file", &mut tls.ca_file);
        let chain = of("cert_file", &mut tls.cert_file);
        let key = of("key_file", &mut tls.key_file);
        if [&authorities, &chain, &key]
            .into_iter()
            .any(|text| *text == Some(None))
        {
            return;
        }
        let identity = chain.flatten().zip(key.flatten());
        let identity = identity
            .as_ref()
            .map(|(chain, key)| (chain.as_str(), key.as_str()));
        match certificates::client_tls(authorities.flatten().as_deref(), identity) {
            Ok(loaded) => tls.loaded = Some(loaded),
            Err((setting, reason)) => self.faults.push((format!("{path}.tls.{setting}"), reason)),
        }
    }

    /// A key in a file becomes a key like any other.
    fn read_key(&mut self, path: &str, file: Option<&mut PathBuf>, key: &mut Option<Secret>) {
        self.read_secret(path, "api_key", file, key);
    }

    /// Keys in a file, one on each line, become a pool like any other.
    fn read_pool(&mut self, path: &str, file: Option<&mut PathBuf>, keys: &mut Vec<Secret>) {
        let Some(file) = file else { return };
        let at = format!("{path}.api_keys_file");
        if !keys.is_empty() {
            let reason = "is given beside api_keys; keep one of them".to_owned();
            self.faults.push((at, reason));
        } else if let Some(text) = self.probe(&at, file) {
            let lines = text.lines().map(str::trim);
            let written = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
            keys.extend(written.map(Secret::new));
            if keys.is_empty() {
                self.faults
                    .push((at, "names a file without a key".to_owned()));
            }
        }
    }

    /// A secret in the file that the setting `<name>_file` names.
    fn read_secret(
        &mut self,
        path: &str,
        name: &str,
        file: Option<&mut PathBuf>,
        key: &mut Option<Secret>,
    ) {
        let Some(file) = file else { return };
        let at = format!("{path}.{name}_file");
        if key.is_some() {
            self.faults
                .push((at, format!("is given beside {name}; keep one of them")));
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
        let text = read(file)
            .map_err(|reason| self.faults.push((path.to_owned(), reason)))
            .ok();
        if let Some(text) = &text {
            self.contents.update(text);
        }
        let digest = text.as_ref().map(|text| Sha256::digest(text).into());
        self.files.push(NamedFile {
            setting: path.to_owned(),
            file: file.clone(),
            digest,
        });
        text
    }
}

/// Returns the text of a file; the error continues a sentence that starts with the file's name.
/// Opening a pipe would wait for its writer.
fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is no regular file".to_owned());
    }
    let mut text = String::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text))
        .map_err(cannot)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "is larger than {}",
            crate::domain::units::format_bytes(MAX_FILE_BYTES)
        ));
    }
    Ok(text)
}
