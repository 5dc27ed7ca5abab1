//! The real server in this process, on ports of its own, with a real gRPC client.

use std::{path::Path, time::Duration};

use relight::internals::{
    config::{GivenEnvironment, load_text},
    grpc::v1::{
        GetInvocationRequest, Invocation, InvocationRecord, InvokeWithRecoveryRequest,
        InvokeWithRecoveryResponse, Message, ModelCall, Overrides, Part, RecoveryEvent, Resumable,
        RewindMode, Role, StoreKind, TextPart, WatchRecoveryRequest,
        admin_service_client::AdminServiceClient, get_invocation_request, invocation::Call,
        part::Content, recovery_event::Body, recovery_service_client::RecoveryServiceClient,
        watch_recovery_request::Start,
    },
    server::{Listeners, Running, ServerOptions},
};
use tonic::{Streaming, transport::Channel};

/// Longest time that a test waits for an event.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running server and a connection to it.
pub(crate) struct Relight {
    pub(crate) running: Running,
    channel: Channel,
}

/// Follows the server's events.
pub(crate) struct Watch {
    stream: Streaming<relight::internals::grpc::v1::WatchRecoveryResponse>,
    /// Everything so far, bookmarks not.
    pub(crate) seen: Vec<RecoveryEvent>,
}

// === impl Relight ===

impl Relight {
    /// Starts a server with this configuration; its listeners are added.
    pub(crate) async fn start(yaml: &str) -> Self {
        let yaml =
            format!("server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\" }}\n{yaml}");
        Self::start_whole(&yaml).await
    }

    /// Starts a server with a configuration that names its own listeners.
    pub(crate) async fn start_whole(yaml: &str) -> Self {
        let running = running(yaml, None).await;
        let endpoint = format!("http://{}", running.address);
        let channel = Channel::from_shared(endpoint)
            .unwrap()
            .connect()
            .await
            .unwrap();
        Self { running, channel }
    }

    /// A client of `RecoveryService`.
    pub(crate) fn recovery(&self) -> RecoveryServiceClient<Channel> {
        RecoveryServiceClient::new(self.channel.clone()).max_decoding_message_size(64 << 20)
    }

    /// A client of `AdminService`.
    pub(crate) fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel.clone())
    }

    /// Calls as an `executor` and waits for the end.
    pub(crate) async fn ask(&self, text: &str) -> InvokeWithRecoveryResponse {
        self.invoke(asking(text)).await
    }

    /// Calls and waits for the end.
    pub(crate) async fn invoke(&self, invocation: Invocation) -> InvokeWithRecoveryResponse {
        let request = InvokeWithRecoveryRequest {
            invocation: Some(invocation),
        };
        self.recovery()
            .invoke_with_recovery(request)
            .await
            .unwrap()
            .into_inner()
    }

    /// Explains an invocation.
    pub(crate) async fn get(&self, id: &str) -> InvocationRecord {
        let invocation = Some(get_invocation_request::Invocation::InvocationId(
            id.to_owned(),
        ));
        let request = GetInvocationRequest { invocation };
        self.recovery()
            .get_invocation(request)
            .await
            .unwrap()
            .into_inner()
            .invocation
            .unwrap()
    }

    /// Watches from now on, or from `start`.
    pub(crate) async fn watch(&self, start: Start) -> Watch {
        let request = WatchRecoveryRequest {
            filter: None,
            start: Some(start),
        };
        let mut stream = self
            .recovery()
            .watch_recovery(request)
            .await
            .unwrap()
            .into_inner();
        // The first word is a bookmark: from here on nothing is missed.
        stream.message().await.unwrap();
        Watch {
            stream,
            seen: Vec::new(),
        }
    }
}

// === impl Watch ===

impl Watch {
    /// Reads on until an event of this type came, and returns it.
    pub(crate) async fn until(&mut self, kind: &str) -> RecoveryEvent {
        self.until_any(&[kind]).await
    }

    /// Reads on until the journal is lost, or found again: the fleet may have the same database, and
    /// is lost and found by itself.
    pub(crate) async fn until_journal(&mut self, kind: &str) {
        loop {
            let store = match self.until(kind).await.body {
                Some(Body::StoreLost(event)) => event.kind(),
                Some(Body::StoreFound(event)) => event.kind(),
                other => panic!("{other:?} is about no store"),
            };
            if store == StoreKind::Journal {
                return;
            }
        }
    }

    /// Reads on until an event of one of these types came, and returns it.
    pub(crate) async fn until_any(&mut self, wanted: &[&str]) -> RecoveryEvent {
        let reading = async {
            loop {
                let event = self.stream.message().await.unwrap().unwrap().event.unwrap();
                let found = wanted.contains(&kind_of(&event).as_str());
                if kind_of(&event) != "bookmark" {
                    self.seen.push(event.clone());
                }
                if found {
                    return event;
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, reading).await;
        let Ok(event) = waited else {
            panic!("no {wanted:?} came after {:?}", self.kinds())
        };
        event
    }

    /// The types of everything so far.
    pub(crate) fn kinds(&self) -> Vec<String> {
        self.seen.iter().map(kind_of).collect()
    }
}

/// Starts a server without the pause before its end; its configuration is also written to the file,
/// where one is given.
pub(crate) async fn running(yaml: &str, file: Option<&Path>) -> Running {
    if let Some(file) = file {
        std::fs::write(file, yaml).unwrap();
    }
    running_in(yaml, file, &GivenEnvironment::new()).await
}

/// Starts a server with these variables of the environment.
pub(crate) async fn running_in(
    yaml: &str,
    file: Option<&Path>,
    environment: &GivenEnvironment,
) -> Running {
    let loaded = load_text(yaml, file, environment).unwrap_or_else(|faults| panic!("{faults}"));
    let listeners = Listeners::bind(&loaded.config).await.unwrap();
    let options = ServerOptions {
        skip_pause: true,
        ..ServerOptions::default()
    };
    Running::start(&loaded, listeners, &options).await.unwrap()
}

/// The event's type in snake case.
pub(crate) fn kind_of(event: &RecoveryEvent) -> String {
    let debug = event
        .body
        .as_ref()
        .map(|body| format!("{body:?}"))
        .unwrap_or_default();
    let name = debug.split('(').next().unwrap_or_default();
    let mut kind = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !kind.is_empty() {
            kind.push('_');
        }
        kind.extend(letter.to_lowercase());
    }
    kind
}

/// An invocation of one user turn, as an `executor`.
pub(crate) fn asking(text: &str) -> Invocation {
    let part = Part {
        content: Some(Content::Text(TextPart {
            text: text.to_owned(),
        })),
        ..Part::default()
    };
    let message = Message {
        role: Role::User.into(),
        parts: vec![part],
        ..Message::default()
    };
    let call = ModelCall {
        messages: vec![message],
        ..ModelCall::default()
    };
    Invocation {
        operation: "executor".to_owned(),
        call: Some(Call::Model(call)),
        ..Invocation::default()
    }
}

/// A stream whose client understands rewinds.
pub(crate) fn streaming(text: &str, mode: RewindMode) -> Invocation {
    let mut invocation = asking(text);
    invocation.overrides = Some(Overrides {
        rewind_mode: mode.into(),
        ..Overrides::default()
    });
    invocation
}

/// Continues for a while without its client.
pub(crate) fn resumable(mut invocation: Invocation) -> Invocation {
    let overrides = invocation.overrides.get_or_insert_default();
    overrides.resumable = Some(Resumable {
        grace_ms: Some(20_000),
    });
    invocation
}
