//! A reload never opens a guarded server and never puts the scripted model in the place of a real
//! one.

use std::{path::Path, time::Duration};

use relight::internals::{
    domain::fold::hash_text,
    grpc::v1::{
        CircuitForce, ConfigurationReloadedEvent, ForceCircuitRequest, GetStatusRequest,
        GetStatusResponse, InvokeWithRecoveryRequest, WatchRecoveryRequest, WatchRecoveryResponse,
        recovery_event::Body, watch_recovery_request::Start,
    },
};
use rustix::process::Signal;
use tonic::{Code, Streaming};

use crate::support::{
    process::{Process, Serve, with_key},
    relight::asking,
    upstream::Upstream,
};

/// Longest wait for anything here.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server that other hosts could reach, in a process of its own.
struct Guarded {
    process: Process,
}

fn configuration(upstream: &Upstream) -> String {
    format!(
        "\
# Reached by others.
providers:
  real:
    dialect: openai_chat
    base_url: \"{}\"
    api_key: test-key
targets:
  one: {{ provider: real, model: m }}
routes:
  default: {{ targets: [one] }}
  private: {{ targets: [one] }}
server:
  listen: \"0.0.0.0:0\"
  admin_listen: \"127.0.0.1:0\"
  keys:
    - tenant: ops
      sha256: \"{}\"
      admin: true
    - tenant: acme
      sha256: \"{}\"
      routes: [default]
journal: {{ store: memory }}
events:
  capacity: 4096
",
        upstream.base_url(),
        hash_text("ops-key"),
        hash_text("acme-key")
    )
}

// === impl Guarded ===

impl Guarded {
    async fn start(configuration: &str) -> Self {
        Self {
            process: Serve::new(&[], configuration).start().await,
        }
    }

    async fn status(&self) -> GetStatusResponse {
        self.process
            .admin()
            .get_status(with_key("ops-key", GetStatusRequest::default()))
            .await
            .unwrap()
            .into_inner()
    }

    /// Replaces the file and waits until it was applied or rejected.
    async fn reload(&self, place: impl FnOnce(&Path)) -> GetStatusResponse {
        let seen = |status: &GetStatusResponse| {
            (
                status.configuration_generation,
                status.configuration_faults.clone(),
            )
        };
        let before = seen(&self.status().await);
        let new = self.process.file.with_extension("new");
        place(&new);
        std::fs::rename(&new, &self.process.file).unwrap();
        self.process.signal(Signal::HUP);
        let changed = async {
            loop {
                let status = self.status().await;
                if seen(&status) != before {
                    return status;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, changed)
            .await
            .expect("the reload is neither taken nor refused")
    }

    async fn write(&self, text: &str) -> GetStatusResponse {
        self.reload(|new| std::fs::write(new, text).unwrap()).await
    }

    async fn events(&self) -> Streaming<WatchRecoveryResponse> {
        let watch = WatchRecoveryRequest {
            filter: None,
            start: Some(Start::Live(true)),
        };
        let events = self
            .process
            .recovery()
            .watch_recovery(with_key("ops-key", watch))
            .await;
        let mut events = events.unwrap().into_inner();
        // The first message is a bookmark: nothing after it is missed.
        events.message().await.unwrap();
        events
    }

    async fn invoke(&self, key: &str, route: &str) -> Result<String, Code> {
        let mut invocation = asking("Are you there?");
        route.clone_into(&mut invocation.route);
        let request = with_key(
            key,
            InvokeWithRecoveryRequest {
                invocation: Some(invocation),
            },
        );
        let response = self.process.recovery().invoke_with_recovery(request).await;
        response
            .map(|response| format!("{:?}", response.into_inner()))
            .map_err(|status| status.code())
    }

    async fn assert_guarded(&self, when: &str) {
        for key in ["", "wrong"] {
            assert_eq!(
                self.invoke(key, "").await.unwrap_err(),
                Code::Unauthenticated,
                "{when}"
            );
            let force = ForceCircuitRequest {
                force: CircuitForce::Open.into(),
                target: "one".to_owned(),
                ..Default::default()
            };
            let forced = self
                .process
                .admin()
                .force_circuit(with_key(key, force))
                .await;
            assert_eq!(forced.unwrap_err().code(), Code::Unauthenticated, "{when}");
        }
        assert_eq!(
            self.invoke("acme-key", "private").await.unwrap_err(),
            Code::PermissionDenied,
            "{when}"
        );
        let answer = self.invoke("acme-key", "").await.unwrap();
        assert!(answer.contains("Hello from upstream"), "{when}: {answer}");
    }
}

/// What was refused until a configuration was taken, each with its reasons, and what was taken.
async fn until_reloaded(
    events: &mut Streaming<WatchRecoveryResponse>,
) -> (Vec<String>, ConfigurationReloadedEvent) {
    let mut rejected = Vec::new();
    let reading = async {
        loop {
            match events.message().await.unwrap().unwrap().event.unwrap().body {
                Some(Body::ConfigurationRejected(event)) => {
                    rejected.push(format!("{:?}", event.faults));
                }
                Some(Body::ConfigurationReloaded(event)) => return event,
                _ => {}
            }
        }
    };
    let reloaded = tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("no configuration is taken");
    (rejected, reloaded)
}

#[tokio::test]
async fn no_beginning_of_its_file_opens_a_protected_server_or_removes_its_models() {
    let upstream = Upstream::start().await;
    let whole = configuration(&upstream);
    let server = Guarded::start(&whole).await;
    server.assert_guarded("before any change").await;
    let mut cuts: Vec<usize> = whole.match_indices('\n').map(|(at, _)| at + 1).collect();
    cuts.extend((0..whole.len()).step_by(61));
    cuts.retain(|cut| whole[*cut..].trim() != "");
    for cut in cuts {
        let beginning = &whole[..cut];
        server.write(beginning).await;
        server
            .assert_guarded(&format!("after a reload of\n{beginning}"))
            .await;
        let back = server.write(&whole).await;
        assert!(back.configuration_faults.is_empty(), "{back:?}");
    }
}

#[tokio::test]
async fn a_reload_that_would_weaken_the_server_is_refused_whole_with_every_reason() {
    let upstream = Upstream::start().await;
    let whole = configuration(&upstream);
    let server = Guarded::start(&whole).await;
    let status = server
        .write("server: { auth: none, listen: \"127.0.0.1:0\" }\nadmission: { max_in_flight: 5 }\n")
        .await;
    let faults: Vec<&str> = status
        .configuration_faults
        .iter()
        .map(|fault| fault.path.as_str())
        .collect();
    assert_eq!(
        faults,
        ["server.auth", "targets", "routes.default"],
        "{status:?}"
    );
    server
        .assert_guarded("after a file that opens it on purpose")
        .await;
    let scripted = whole
        .replace("openai_chat", "scripted")
        .replace("    api_key: test-key\n", "");
    let scripted: String = scripted
        .lines()
        .filter(|line| !line.contains("base_url"))
        .map(|l| format!("{l}\n"))
        .collect();
    let status = server.write(&scripted).await;
    assert!(
        status
            .configuration_faults
            .iter()
            .any(|fault| fault.path == "targets.one"),
        "{status:?}"
    );
    server
        .assert_guarded("after a file whose model is the scripted one")
        .await;
    let status = server.write("").await;
    assert!(
        status.configuration_faults[0].reason.contains("is empty"),
        "{status:?}"
    );
    let status = server.write(&whole.replace("4096", "2048")).await;
    assert!(
        status.configuration_faults.is_empty(),
        "an ordinary change: {status:?}"
    );
}

/// A valid provider whose script cannot be played, which is found when the configuration is put in
/// force.
const UNPLAYABLE: &str =
    "providers:\n  played: { dialect: scripted, script: { otherwise: { sing: \"\" } } }\n";

#[tokio::test]
async fn a_configuration_that_the_server_refuses_never_becomes_what_later_ones_are_judged_by() {
    let upstream = Upstream::start().await;
    let whole = configuration(&upstream);
    let server = Guarded::start(&whole).await;
    let mut events = server.events().await;
    // Valid, and it weakens nothing: the target has another name.
    let renamed = whole
        .replace("one: {", "other: {")
        .replace("[one]", "[other]");
    let refused = renamed
        .replace("providers:\n", UNPLAYABLE)
        .replace("4096", "2048");
    let status = server.write(&refused).await;
    assert!(
        status.configuration_faults[0]
            .reason
            .contains("providers.played.script"),
        "{status:?}"
    );
    assert_eq!(status.configuration_generation, 1);
    server
        .assert_guarded("after a file that is refused when it is put in force")
        .await;
    // A new target beside the refused file; beside what is in force it replaces a real one.
    let scripted = whole
        .replace(
            "providers:\n",
            "providers:\n  played: { dialect: scripted }\n",
        )
        .replace("one: { provider: real", "one: { provider: played");
    let status = server.write(&scripted).await;
    assert!(
        status
            .configuration_faults
            .iter()
            .any(|fault| fault.path == "targets.one"),
        "{status:?}"
    );
    server
        .assert_guarded("after a file whose model is the scripted one")
        .await;
    // Refused for the same reason again, and repaired: all that changed is against what was in
    // force.
    server.write(&refused).await;
    let repaired = refused.replace("sing: \"\"", "answer: { text: \"\" }");
    let status = server.write(&repaired).await;
    assert!(status.configuration_faults.is_empty(), "{status:?}");
    let (rejected, reloaded) = until_reloaded(&mut events).await;
    assert_eq!(
        rejected.len(),
        3,
        "each refusal is reported once: {rejected:#?}"
    );
    assert!(
        rejected[0].contains("providers.played.script"),
        "{rejected:#?}"
    );
    for path in [
        "events.capacity",
        "providers.played",
        "targets.one",
        "targets.other",
    ] {
        assert!(
            reloaded
                .changed_paths
                .iter()
                .any(|changed| changed.starts_with(path)),
            "{path}: {reloaded:?}"
        );
    }
    assert!(
        reloaded
            .needs_restart_paths
            .contains(&"events.capacity".to_owned()),
        "{reloaded:?}"
    );
}

#[tokio::test]
async fn a_pipe_in_place_of_the_configuration_blocks_neither_reloads_nor_the_end() {
    let upstream = Upstream::start().await;
    let whole = configuration(&upstream);
    let mut server = Guarded::start(&whole).await;
    let pipe = |new: &Path| {
        assert!(
            std::process::Command::new("mkfifo")
                .arg(new)
                .status()
                .unwrap()
                .success()
        );
    };
    let status = server.reload(pipe).await;
    assert!(
        status.configuration_faults[0]
            .reason
            .contains("is no regular file"),
        "{status:?}"
    );
    assert!(server.write(&whole).await.configuration_faults.is_empty());
    server.reload(pipe).await;
    assert_eq!(server.process.terminate().await, Some(0));
}
