//! A service with `preset: literal`, and how its calls fail.

use relight::internals::grpc::v1::{Failure, Overrides, invoke_with_recovery_response::Outcome};
use serde_json::json;

use super::{
    relight::{Relight, asking},
    upstream::{Reply, Upstream},
};

const ONE_TARGET: &str = "
targets: { main: { provider: model, model: m-1 } }
routes: { default: { targets: [main], deadline: 60s } }
";

/// The preset, with one target at this provider and these settings beside it.
pub(crate) fn literal(upstream: &Upstream, more: &str) -> String {
    let provider = format!(
        "{{ dialect: openai_chat, base_url: \"{}\", api_key: k }}",
        upstream.base_url()
    );
    format!("preset: literal\nproviders: {{ model: {provider} }}\n{ONE_TARGET}{more}")
}

/// A refusal with this status and message.
pub(crate) fn failing(status: u16, message: &str) -> Reply {
    Reply::refusal(status, &[], &json!({"error": {"message": message}}))
}

/// How a call fails that has so many retries.
pub(crate) async fn failure(relight: &Relight, max_retries: u32) -> Failure {
    let mut invocation = asking("Hello");
    invocation.overrides = Some(Overrides {
        max_retries: Some(max_retries),
        ..Overrides::default()
    });
    match relight.invoke(invocation).await.outcome {
        Some(Outcome::Failure(failure)) => failure,
        other => panic!("no failure but {other:?}"),
    }
}
