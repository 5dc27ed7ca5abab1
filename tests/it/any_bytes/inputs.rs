//! Everything that takes bytes from outside, each as one function of those bytes: property tests
//! and fuzzers run the same.

use std::{
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use futures_util::StreamExt as _;
use prost::Message as _;
use relight::internals::{
    config::{GivenEnvironment, load_text},
    domain::{
        adaptation::DialectOverrides,
        failure::ProviderError,
        ids::{InvocationId, TargetId},
        invocation::TraceContext,
        message::ModelCall,
        target::{Capabilities, Dialect, Target},
        upstream::BackgroundResponses,
        wire::{CompletionForm, ProviderRequest, SentTo},
    },
    engine::Arrival,
    front,
    grpc::{convert, v1},
    layers::spans::EntryPoint,
    provider::{ProviderSpec, Providers},
    wire_server::{Reply, WireServer},
};
use tokio::{runtime::Runtime, time::Instant};
use tower::{Service as _, ServiceExt as _};

/// Longest time that reading one input may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn arrival() -> Arrival {
    Arrival::new("acme".into(), EntryPoint::Grpc("fuzzed"))
}

/// A message of the gRPC API.
pub(crate) fn grpc_message(bytes: &[u8]) {
    if let Ok(request) = v1::InvokeWithRecoveryRequest::decode(bytes) {
        let _ = convert::request::invoke_request(request, arrival());
    }
    if let Ok(request) = v1::StreamWithRecoveryRequest::decode(bytes) {
        let _ = convert::request::stream_request(request, arrival());
    }
    if let Ok(request) = v1::WatchRecoveryRequest::decode(bytes) {
        let _ = convert::request::watch_request(request);
    }
    if let Ok(request) = v1::ClassifyFailureRequest::decode(bytes) {
        let _ = convert::facts::failure_facts(request);
    }
}

/// A body of the OpenAI-compatible front.
pub(crate) fn front_body(bytes: &[u8]) {
    let _ = front::is_request(bytes);
}

/// A configuration file.
pub(crate) fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(faults) = load_text(&text, None, &GivenEnvironment::new()) {
        assert!(!faults.faults.is_empty());
    }
}

/// A response of a provider; the first byte chooses the dialect and how it is framed.
pub(crate) fn provider_response(bytes: &[u8]) {
    /// A server keeps all requests that it received, so it is replaced after this many.
    const REQUESTS_PER_SERVER: u32 = 1_000;
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
    static SERVER: Mutex<Option<(WireServer, u32)>> = Mutex::new(None);
    let Some((choice, body)) = bytes.split_first() else {
        return;
    };
    let dialects = [
        Dialect::OpenaiChat,
        Dialect::OpenaiResponses,
        Dialect::Anthropic,
        Dialect::Gemini,
        Dialect::Bedrock,
    ];
    let dialect = dialects[usize::from(*choice) % dialects.len()];
    let kinds = [
        "text/event-stream",
        "application/json",
        "application/vnd.amazon.eventstream",
    ];
    let kind = kinds[usize::from(*choice) / dialects.len() % kinds.len()];
    RUNTIME.block_on(async {
        let held = SERVER.lock().expect("the server").take();
        let (server, used) = match held.filter(|(_, used)| *used < REQUESTS_PER_SERVER) {
            Some(held) => held,
            None => (WireServer::start().await.expect("a server"), 0),
        };
        server.push(Reply::body(200, &[("content-type", kind)], body));
        let address = format!("http://{}", server.address());
        let read = tokio::time::timeout(PATIENCE, read(dialect, address))
            .await
            .expect("a response is read in time");
        assert_eq!(
            server.unplayed(),
            0,
            "{dialect:?}: the response was not fetched: {read:?}"
        );
        *SERVER.lock().expect("the server") = Some((server, used + 1));
    });
}

/// Reads a response to its end or its first error.
async fn read(dialect: Dialect, address: String) -> Result<(), ProviderError> {
    let mut spec = ProviderSpec::new("p", dialect, address.clone());
    spec.region = Some("here".to_owned());
    spec.credentials = [("default".to_owned(), "any key".into())].into();
    let mut providers = Providers::build(&[spec]).expect("a provider");
    let target = Target {
        id: TargetId::from("t"),
        provider: "p".into(),
        family: "p".into(),
        dialect,
        model: "m".into(),
        credential: "default".into(),
        endpoint: address.as_str().into(),
        capabilities: Capabilities::default(),
        system_prompt: None,
    };
    let call = ProviderRequest {
        tool: None,
        invocation: InvocationId::from("i"),
        attempt: 1,
        target: Arc::new(target),
        call: Arc::new(ModelCall::default()),
        wording: DialectOverrides::default(),
        form: CompletionForm::Whole,
        deadline: Instant::now() + PATIENCE,
        idle: None,
        trace: TraceContext::default(),
        sent_to: SentTo::default(),
        background: BackgroundResponses::default(),
        attach: None,
    };
    let providers = providers.ready().await.expect("a provider is always ready");
    let mut deltas = providers.call(call).await?;
    while let Some(delta) = deltas.next().await {
        delta.map_err(|error| *error)?;
    }
    Ok(())
}
