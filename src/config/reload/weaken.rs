//! What a changed configuration may not remove from a running server: its authentication, and its
//! real models.
//!
//! A file that is valid by itself can still be wrong as a replacement: cut short, emptied, or
//! written for another address. It is compared with what the server has bound and what it calls
//! now; an intended change of this kind requires a restart.

use std::net::SocketAddr;

use crate::{
    config::{Config, Fault, load::Loaded, server::AuthMode},
    domain::{ids::TargetId, target::Dialect},
};

/// Returns the reasons against replacing `in_force` by `next`; empty when it may take effect.
/// `bound` are the addresses at which callers reach the server, whatever either file contains.
pub(super) fn weakenings(in_force: &Loaded, bound: &[SocketAddr], next: &Loaded) -> Vec<Fault> {
    let mut faults = Vec::new();
    if is_cut_short(in_force.text.expose(), next.text.expose()) {
        let reason = "ends within a section of the file in force, as if it was not written to its end; if that is \
                      meant, end it with a comment";
        faults.push(Fault::new("", reason));
    }
    faults.extend(unguarded(&in_force.config, bound, &next.config));
    if in_force.has_targets && !next.has_targets {
        faults.push(Fault::new(
            "targets",
            "are gone; the configuration in force has some",
        ));
    }
    faults.extend(unreal(&in_force.config, &next.config));
    faults
}

/// Returns whether `next` is the start of `old` and ends elsewhere than before one of its top-level
/// settings.
fn is_cut_short(old: &str, next: &str) -> bool {
    let Some(rest) = old.strip_prefix(next) else {
        return false;
    };
    let ends_a_line = next.ends_with('\n') || rest.starts_with('\n');
    let follows = |line: &&str| !line.trim().is_empty() && !line.starts_with('#');
    match rest.lines().find(follows) {
        None => false,
        Some(line) => !ends_a_line || line.starts_with([' ', '\t', '-', '}', ']']),
    }
}

fn unguarded(in_force: &Config, bound: &[SocketAddr], next: &Config) -> Option<Fault> {
    if in_force.server.auth_mode() == AuthMode::None || next.server.auth_mode() != AuthMode::None {
        return None;
    }
    let reachable = bound.iter().find(|address| !address.ip().is_loopback());
    match (reachable, next.server.auth) {
        (Some(address), _) => {
            let reason = format!(
                "would let callers in without a key on {address}, which other hosts can reach; restart Relight if \
                 that is meant"
            );
            Some(Fault::new("server.auth", reason))
        }
        (None, None) => {
            let reason =
                "would let callers in without a key; write server.auth: none if that is meant";
            Some(Fault::new("server.auth", reason))
        }
        (None, Some(_)) => None,
    }
}

/// Targets and routes that call real models, and would call the scripted one.
fn unreal(in_force: &Config, next: &Config) -> Vec<Fault> {
    let scripted = |config: &Config, id: &TargetId| -> Option<bool> {
        let provider = config.providers.get(&config.targets.get(id)?.provider)?;
        Some(provider.dialect == Dialect::Scripted)
    };
    let reason = "would be answered by the scripted model in place of a real one; restart Relight if that is meant";
    let targets = next
        .targets
        .keys()
        .filter(|id| scripted(in_force, id) == Some(false) && scripted(next, id) == Some(true));
    let mut faults: Vec<Fault> = targets
        .map(|id| Fault::new(format!("targets.{id}"), reason))
        .collect();
    for (name, route) in &next.routes {
        let Some(before) = in_force.routes.get(name) else {
            continue;
        };
        let was_real = before
            .targets
            .iter()
            .any(|id| scripted(in_force, id) == Some(false));
        let is_real = route
            .targets
            .iter()
            .any(|id| scripted(next, id) == Some(false));
        if was_real && !is_real {
            faults.push(Fault::new(format!("routes.{name}"), reason));
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::{GivenEnvironment, load_text};

    const GUARDED: &str = "\
# A server that others can reach.
providers:
  p: { dialect: openai_chat, base_url: \"http://127.0.0.1:1/v1\", api_key: k }
targets:
  a: { provider: p, model: m }
  b:
    provider: p
    model: n
routes:
  chat: { targets: [a, b] }
  other: { targets: [b] }
server:
  listen: \"127.0.0.1:0\"
  keys:
    - tenant: acme
      sha256: \"0000000000000000000000000000000000000000000000000000000000000000\"
      routes: [chat]
    - tenant: ops
      sha256: \"1111111111111111111111111111111111111111111111111111111111111111\"
      admin: true
events:
  capacity: 4096
";

    fn loaded(text: &str) -> Option<Loaded> {
        load_text(text, None, &GivenEnvironment::new()).ok()
    }

    fn reasons(old: &str, next: &str, bound: &str) -> String {
        let faults = weakenings(
            &loaded(old).unwrap(),
            &[bound.parse().unwrap()],
            &loaded(next).unwrap(),
        );
        faults
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn what_would_open_a_server_or_leave_nothing_real_to_call_is_refused_with_every_reason() {
        let open = "0.0.0.0:50051";
        assert_eq!(reasons(GUARDED, GUARDED, open), "");
        let unguarded = GUARDED.split("server:").next().unwrap();
        assert!(reasons(GUARDED, unguarded, open).contains("server.auth: would let callers in"));
        let explicit = format!("{unguarded}server: {{ auth: none }}\n");
        assert!(
            reasons(GUARDED, &explicit, open).contains("server.auth"),
            "bound to what others can reach"
        );
        assert_eq!(
            reasons(GUARDED, &explicit, "127.0.0.1:50051"),
            "",
            "written, and for this host alone"
        );
        assert!(
            reasons(GUARDED, unguarded, "127.0.0.1:50051").contains("server.auth"),
            "not written"
        );
        let all = reasons(GUARDED, "admission: { max_in_flight: 1 }\n", open);
        assert!(
            all.contains("server.auth") && all.contains("targets: are gone"),
            "{all}"
        );
        assert!(reasons(GUARDED, "# later\n", open).contains("targets: are gone"));
        let guard = format!("server:{}", GUARDED.split("server:").nth(1).unwrap());
        let scripted = "providers: { p: { dialect: scripted } }\ntargets: { a: { provider: p, model: m } }\n\
                        routes: { chat: { targets: [a] } }\n";
        let all = reasons(GUARDED, &format!("{scripted}{guard}"), open);
        assert!(
            all.contains("targets.a") && all.contains("routes.chat"),
            "{all}"
        );
    }

    #[test]
    fn ordinary_changes_are_none_of_these() {
        let open = "0.0.0.0:50051";
        for (old, new) in [
            ("4096", "2048"),
            ("model: n", "model: o"),
            ("acme", "umbrella"),
        ] {
            assert_eq!(reasons(GUARDED, &GUARDED.replace(old, new), open), "");
        }
        assert_eq!(
            reasons(GUARDED, GUARDED.split("events:").next().unwrap(), open),
            "",
            "a whole section taken out"
        );
        assert_eq!(
            reasons(
                "admission: { max_in_flight: 1 }\n",
                "admission: { max_in_flight: 2 }\nevents: { capacity: 4096 }\n",
                open
            ),
            ""
        );
    }

    proptest! {
        #[test]
        fn no_beginning_of_a_guarded_file_weakens_it(bytes in 0..GUARDED.len()) {
            let old = loaded(GUARDED).unwrap();
            let Some(next) = loaded(&GUARDED[..bytes]) else { return Ok(()) };
            if weakenings(&old, &["0.0.0.0:1".parse().unwrap()], &next).is_empty() {
                prop_assert_eq!(&next.config.server.keys.len(), &2);
                prop_assert_eq!(&next.config.server.keys[0].routes, &old.config.server.keys[0].routes);
                prop_assert_eq!(next.config.targets.len(), 2);
                prop_assert_eq!(next.config.routes.len(), 2);
            }
        }
    }
}
