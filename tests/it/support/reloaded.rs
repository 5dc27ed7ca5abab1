//! A real server whose configuration is a file that is changed while it runs.

use std::{path::PathBuf, time::Duration};

use relight::internals::{
    grpc::v1::{
        ConfigurationReloadedEvent, InvokeWithRecoveryRequest, InvokeWithRecoveryResponse,
        RecoveryEvent, Target, WatchRecoveryRequest, WatchRecoveryResponse,
        admin_service_client::AdminServiceClient, recovery_event::Body,
        recovery_service_client::RecoveryServiceClient, watch_recovery_request::Start,
    },
    server::Running,
};
use serde_json::{Value, json};
use tonic::{Streaming, transport::Channel};

use super::{
    process::replace,
    relight::{asking, running},
    upstream::Upstream,
};

/// Longest time that a change may take to be in force.
const PATIENCE: Duration = Duration::from_mins(1);

/// The key by which changes are watched where callers need one: that of an operator.
pub(crate) const WATCHING_KEY: &str = "secret";

/// A running server, its file, and a watch of its events.
pub(crate) struct Reloaded {
    pub(crate) running: Running,
    pub(crate) upstream: Upstream,
    pub(crate) config: Value,
    pub(crate) channel: Channel,
    events: Streaming<WatchRecoveryResponse>,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

// === impl Reloaded ===

impl Reloaded {
    /// Starts a server with one target, `main`, and these settings over that.
    pub(crate) async fn start(settings: Value) -> Self {
        let upstream = Upstream::start().await;
        let mut config = json!({
            "server": {
                "listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0", "openai_front": { "listen": "127.0.0.1:0" },
            },
            "providers": { "p": { "dialect": "openai_chat", "base_url": upstream.base_url(), "api_key": "k" } },
            "targets": { "main": { "provider": "p", "model": "m-1" } },
            "routes": { "default": { "targets": ["main"] } },
            "journal": { "store": "memory" },
        });
        merge(&mut config, settings);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relight.yaml");
        let running = running(&config.to_string(), Some(&file)).await;
        let channel = Channel::from_shared(format!("http://{}", running.address))
            .unwrap()
            .connect()
            .await
            .unwrap();
        Self {
            running,
            upstream,
            config,
            events: watch(&channel).await,
            channel,
            file,
            _folder: folder,
        }
    }

    /// Lays these settings over the file, and waits until they are accepted.
    pub(crate) async fn change(&mut self, settings: Value) -> (ConfigurationReloadedEvent, String) {
        // A watch ends with the access that it began with, which the last change may have taken.
        self.events = watch(&self.channel).await;
        merge(&mut self.config, settings);
        replace(&self.file, &self.config.to_string());
        self.accepted().await
    }

    /// Waits until a change of the file, or of one that it names, is accepted.
    pub(crate) async fn accepted(&mut self) -> (ConfigurationReloadedEvent, String) {
        let reading = async {
            loop {
                let event: RecoveryEvent =
                    self.events.message().await.unwrap().unwrap().event.unwrap();
                match event.body {
                    Some(Body::ConfigurationReloaded(reloaded)) => {
                        return (reloaded, event.display_text);
                    }
                    Some(Body::ConfigurationRejected(rejected)) => {
                        panic!("refused: {:#?}", rejected.faults)
                    }
                    _ => {}
                }
            }
        };
        tokio::time::timeout(PATIENCE, reading)
            .await
            .expect("the change in time")
    }

    pub(crate) fn recovery(&self) -> RecoveryServiceClient<Channel> {
        RecoveryServiceClient::new(self.channel.clone())
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel.clone())
    }

    /// Makes a call, which must not be refused.
    pub(crate) async fn invoke(&self) -> InvokeWithRecoveryResponse {
        let request = InvokeWithRecoveryRequest {
            invocation: Some(asking("hello")),
        };
        self.recovery()
            .invoke_with_recovery(request)
            .await
            .unwrap()
            .into_inner()
    }

    /// The target `main` as an operator sees it.
    pub(crate) async fn target(&self) -> Target {
        let targets = self
            .admin()
            .list_targets(relight::internals::grpc::v1::ListTargetsRequest::default())
            .await
            .unwrap();
        targets
            .into_inner()
            .targets
            .into_iter()
            .find(|target| target.id == "main")
            .unwrap()
    }
}

/// A watch of everything from now on.
async fn watch(channel: &Channel) -> Streaming<WatchRecoveryResponse> {
    let mut request = tonic::Request::new(WatchRecoveryRequest {
        filter: None,
        start: Some(Start::Live(true)),
    });
    request.metadata_mut().insert(
        "authorization",
        format!("Bearer {WATCHING_KEY}").parse().unwrap(),
    );
    let mut events = RecoveryServiceClient::new(channel.clone())
        .watch_recovery(request)
        .await
        .unwrap()
        .into_inner();
    // The first message is a bookmark: nothing after it is missed.
    events.message().await.unwrap();
    events
}

/// Lays `over` over `base`: maps deeply, `null` takes out, everything else replaces.
pub(crate) fn merge(base: &mut Value, over: Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (name, value) in over {
                match value {
                    Value::Null => drop(base.remove(&name)),
                    value => merge(base.entry(name).or_insert(json!({})), value),
                }
            }
        }
        (base, over) => *base = over,
    }
}
