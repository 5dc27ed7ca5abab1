//! Checks beyond types: unresolved references, ranges, missing authentication, settings that
//! contradict each other.
//!
//! Every setting is checked. What decoding removed as faulty still counts as written, so that one
//! fault is not reported twice. No file is read and no value corrected.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use super::{
    Config,
    discover::WELL_KNOWN,
    fault::Fault,
    server::{AuthMode, ServerConfig},
    tools::McpFrontConfig,
    tree::Node,
};
use crate::domain::ids::TargetId;

mod addresses;
mod callers;
mod keys;
mod limits;
mod observe;
mod tools;
mod upstream;

/// Adds every fault of the configuration. `written` is the tree before anything was taken out of
/// it; `more` are faults that were found elsewhere, by path.
pub(super) fn check(
    config: &Config,
    written: &Node,
    more: Vec<(String, String)>,
    faults: &mut Vec<Fault>,
) {
    let lost = faults.iter().map(|fault| fault.path.clone()).collect();
    let mut checker = Checker {
        written: BTreeMap::new(),
        lost,
        faults,
    };
    written.each(&mut |node| {
        checker
            .written
            .insert(node.path.clone(), node.clone_scalar());
    });
    for (path, reason) in more {
        checker.fault(&path, reason);
    }
    checker.server(config);
    checker.providers(config);
    checker.targets(config);
    checker.routes(config);
    checker.policies(config);
    checker.releases(config);
    checker.tools(config);
    checker.observe(config);
    checker.fleet(config);
}

struct Checker<'a> {
    /// Every value that is written, by its path.
    written: BTreeMap<String, Node>,
    /// Settings that were taken out as faulty, by path.
    lost: Vec<String>,
    faults: &'a mut Vec<Fault>,
}

// === impl Checker ===

impl Checker<'_> {
    /// Adds a fault of the setting at `path`, reported where it or the nearest setting around
    /// it is written.
    ///
    /// A value that was taken out as faulty is not reported again, nor a section that lost a part: it may
    /// be right once the part is.
    fn fault(&mut self, path: &str, reason: impl Into<String>) {
        let part_of = |lost: &String| {
            lost.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        if self.lost.iter().any(part_of) {
            return;
        }
        let fault = match self.variable_of(path) {
            Some(variable) => Fault::of_variable(variable, reason),
            None => self.placed(path, Fault::new(path, reason)),
        };
        self.faults.push(fault);
    }

    /// A reference to a name that is not among `valid`; nothing when it was taken out as faulty.
    fn unknown<'v>(
        &mut self,
        path: &str,
        name: &str,
        kind: &str,
        valid: impl IntoIterator<Item = &'v str>,
    ) {
        let fault = Fault::new(path, format!("is no {kind}")).with_nearest(name, valid);
        let mut fault = self.placed(path, fault);
        // Keys and names from the environment are shown as they are written.
        fault.value.get_or_insert_with(|| name.to_owned());
        self.faults.push(fault);
    }

    /// A setting that must be there, unless it is and was taken out as faulty.
    fn required(&mut self, path: &str, reason: &str) {
        if self
            .written
            .get(path)
            .is_none_or(|node| node.shown().as_deref() == Some(""))
        {
            self.fault(path, reason);
        }
    }

    /// Faults of a policy at `path`, from its own `validate`.
    fn policy<F: AsRef<str>>(&mut self, path: &str, faults: Vec<(F, String)>) {
        for (field, mut reason) in faults {
            let path = format!("{path}.{}", field.as_ref());
            // The value is shown before the reason already.
            if let Some(value) = self.written.get(&path).and_then(Node::shown)
                && reason.ends_with(&format!(", not {value}"))
            {
                reason.truncate(reason.len() - ", not ".len() - value.len());
            }
            self.fault(&path, reason);
        }
    }

    /// Works the same if it inherits from `base`: faults of the base are reported there.
    fn inheriting<F: AsRef<str> + PartialEq>(
        &mut self,
        path: &str,
        faults: Vec<(F, String)>,
        base: &[(F, String)],
    ) {
        self.policy(
            path,
            faults
                .into_iter()
                .filter(|fault| !base.contains(fault))
                .collect(),
        );
    }

    fn range<T: PartialOrd>(&mut self, path: &str, value: &T, min: &T, max: &T, words: &str) {
        if value < min || value > max {
            self.fault(path, format!("must be {words}"));
        }
    }

    fn is_written(&self, path: &str) -> bool {
        self.written.contains_key(path)
    }

    /// Returns the variable of the environment from which a setting has its value, if it is not
    /// written.
    fn variable_of(&self, path: &str) -> Option<&'static str> {
        let (holder, variable) = match path {
            "fleet.name" => (path, "POD_NAME"),
            "fleet.advertise" => (path, "POD_IP"),
            _ => {
                let holder = path.strip_suffix(".api_key")?;
                let name = holder.strip_prefix("providers.")?;
                let known = WELL_KNOWN.iter().find(|known| known.name == name)?;
                (holder, known.variable)
            }
        };
        (!self.is_written(holder)).then_some(variable)
    }

    fn placed(&self, path: &str, fault: Fault) -> Fault {
        if let Some(node) = self.written.get(path) {
            return fault.at(node.at).with_value(node.shown());
        }
        let mut around = path;
        while let Some(end) = around.rfind(['.', '[']) {
            around = &around[..end];
            if let Some(node) = self.written.get(around) {
                return fault.at(node.at);
            }
        }
        fault
    }

    fn server(&mut self, config: &Config) {
        let server = &config.server;
        self.listeners(server, config.tools.mcp_front.as_ref());
        self.callers(config);
        self.limits(server);
        self.range(
            "server.max_message_bytes",
            &server.max_message_bytes,
            &1024,
            &(1 << 30),
            "from 1KiB to 1GiB",
        );
        for (index, origin) in server.cors.allow_origins.iter().enumerate() {
            let host = origin
                .strip_prefix("https://")
                .or_else(|| origin.strip_prefix("http://"));
            if origin != "*" && host.is_none_or(|host| host.is_empty() || host.contains(['/', ' ']))
            {
                let reason = "is no origin; write a scheme and a host, as in https://dashboard.example, or `*`";
                self.fault(&format!("server.cors.allow_origins[{index}]"), reason);
            }
        }
        if let Some(front) = &server.openai_front {
            let min = Duration::from_millis(100);
            let max = Duration::from_mins(5);
            self.range(
                "server.openai_front.keepalive",
                &front.keepalive,
                &min,
                &max,
                "from 100ms to 5m",
            );
        }
        if let Some(tls) = &server.tls {
            for (name, file) in [("cert_file", &tls.cert_file), ("key_file", &tls.key_file)] {
                if file.as_os_str().is_empty() {
                    self.required(
                        &format!("server.tls.{name}"),
                        "is missing; TLS needs a certificate and its key",
                    );
                }
            }
        }
    }

    fn listeners(&mut self, server: &ServerConfig, mcp_front: Option<&McpFrontConfig>) {
        let mut listeners = vec![("server.listen", server.listen)];
        listeners.extend(
            server
                .openai_front
                .as_ref()
                .map(|front| ("server.openai_front.listen", front.listen)),
        );
        listeners.extend(
            server
                .admin_service
                .as_ref()
                .map(|admin| ("server.admin_service.listen", admin.listen)),
        );
        listeners.extend(mcp_front.map(|front| ("tools.mcp_front.listen", front.listen)));
        let unguarded = server.auth.is_none() && server.auth_mode() == AuthMode::None;
        for (path, address) in &listeners {
            if unguarded && !address.ip().is_loopback() && !self.is_written("server.auth") {
                self.fault(
                    path,
                    "can be reached by others while callers are not authenticated; add server.keys or \
                     server.tls.client_ca_file, or write server.auth: none",
                );
            }
        }
        listeners.insert(1, ("server.admin_listen", server.admin_listen));
        for (index, (path, address)) in listeners.iter().enumerate() {
            let taken = listeners[..index]
                .iter()
                .find(|(_, other)| collide(*address, *other));
            if let Some((other, _)) = taken {
                self.fault(path, format!("takes the same address as {other}"));
            }
        }
    }

    /// New versions on trial: each subject and its candidate must exist, and a candidate belongs to
    /// one subject.
    fn releases(&mut self, config: &Config) {
        self.policy("releases", config.releases.validate());
        let servers = || config.tools.servers.keys().map(String::as_str);
        let known = || config.targets.keys().map(TargetId::as_str).chain(servers());
        for (name, subject) in &config.releases.subjects {
            let path = format!("releases.subjects.{name}");
            if known().all(|target| target != name) {
                self.unknown(&path, name, "target or tool server", known());
            }
            let candidate = subject.candidate.as_str();
            let is_server = |name: &str| config.tools.servers.contains_key(name);
            if known().all(|target| target != candidate) {
                self.unknown(
                    &format!("{path}.candidate"),
                    candidate,
                    "target or tool server",
                    known(),
                );
            } else if known().any(|target| target == name)
                && is_server(name) != is_server(candidate)
            {
                self.fault(
                    &format!("{path}.candidate"),
                    "must be a tool server where the subject is one, and else a target",
                );
            }
            for name in [name.as_str(), candidate] {
                if is_server(name) && config.targets.contains_key(&TargetId::from(name)) {
                    self.fault(
                        &path,
                        format!("`{name}` is the name of a target and of a tool server; rename one of them"),
                    );
                }
            }
            let others = config
                .releases
                .subjects
                .iter()
                .filter(|(other, _)| *other != name);
            if others
                .into_iter()
                .any(|(other, its)| its.candidate == subject.candidate || other == candidate)
            {
                self.fault(
                    &format!("{path}.candidate"),
                    "is a subject, or the candidate of another subject, already",
                );
            }
        }
    }

    /// By what the caller of `server.keys[index]` is recognised.
    fn caller_credential(&mut self, server: &ServerConfig, index: usize) {
        let key = &server.keys[index];
        let earlier = &server.keys[..index];
        let path = format!("server.keys[{index}]");
        if let Some(name) = &key.certificate_name {
            let path = format!("{path}.certificate_name");
            if !key.sha256.is_empty() {
                self.fault(&path, "is given beside sha256; keep one of them");
            } else if server.auth_mode() != AuthMode::ClientCertificate {
                self.fault(
                    &path,
                    "has no effect without server.auth: client_certificate",
                );
            } else if earlier
                .iter()
                .any(|other| other.certificate_name.as_ref() == Some(name))
            {
                self.fault(&path, "is the name of another caller already");
            }
        } else if key.sha256.is_empty() {
            self.required(
                &format!("{path}.sha256"),
                "is missing; write the SHA-256 of the key",
            );
        } else if key.sha256.len() != 64 || !key.sha256.chars().all(|c| c.is_ascii_hexdigit()) {
            self.fault(
                &format!("{path}.sha256"),
                "must be 64 hexadecimal digits: the SHA-256 of the key",
            );
        } else if earlier
            .iter()
            .any(|other| other.sha256.eq_ignore_ascii_case(&key.sha256))
        {
            self.fault(
                &format!("{path}.sha256"),
                "is the key of another caller already",
            );
        }
    }

    fn callers(&mut self, config: &Config) {
        let server = &config.server;
        match server.auth {
            Some(AuthMode::ApiKey)
                if server.keys.is_empty() && !self.is_written("server.keys[0]") =>
            {
                self.fault("server.auth", "admits no caller without server.keys");
            }
            Some(AuthMode::ClientCertificate)
                if server
                    .tls
                    .as_ref()
                    .is_none_or(|tls| tls.client_ca_file.is_none())
                    && !self.is_written("server.tls.client_ca_file") =>
            {
                self.fault(
                    "server.auth",
                    "admits no caller without server.tls.client_ca_file",
                );
            }
            Some(AuthMode::None) if !server.keys.is_empty() => {
                self.fault(
                    "server.auth",
                    "leaves server.keys without effect; remove one of them",
                );
            }
            Some(
                AuthMode::None | AuthMode::ApiKey | AuthMode::ClientCertificate | AuthMode::Jwt,
            )
            | None => {}
        }
        self.tokens_and_roles(server);
        self.tenants(server);
        for (index, key) in server.keys.iter().enumerate() {
            let path = format!("server.keys[{index}]");
            if key.tenant.is_empty() {
                self.required(
                    &format!("{path}.tenant"),
                    "is missing; say who calls with this key",
                );
            }
            self.caller_credential(server, index);
            for (route_index, route) in key.routes.iter().enumerate() {
                if !config.routes.contains_key(route)
                    && !self.is_written(&format!("routes.{route}"))
                {
                    let valid = config
                        .routes
                        .keys()
                        .map(crate::domain::ids::RouteName::as_str);
                    self.unknown(
                        &format!("{path}.routes[{route_index}]"),
                        route.as_str(),
                        "route",
                        valid,
                    );
                }
            }
        }
    }
}

/// Returns whether both cannot be listened on at once.
fn collide(one: SocketAddr, other: SocketAddr) -> bool {
    let everywhere = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && (everywhere || one.ip() == other.ip())
}
