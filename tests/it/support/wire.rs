//! Attempts for tests that call providers without the layers above.

use std::{sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use relight::internals::{
    domain::{
        adaptation::DialectOverrides,
        completion::{BlockKind, Delta, FinishReason, Usage},
        failure::ProviderError,
        ids::{InvocationId, TargetId},
        invocation::TraceContext,
        message::{Message, ModelCall, Role},
        target::{Capabilities, Dialect, Target},
        upstream::BackgroundResponses,
        wire::{CompletionForm, ProviderRequest, SentTo},
    },
    provider::{ProviderSpec, Providers},
};
use tokio::time::Instant;
use tower::{Service as _, ServiceExt as _};

/// The name of the provider, and its family, in these tests.
pub(crate) const PROVIDER: &str = "fake";

/// A specification of the provider at that URL.
pub(crate) fn spec(base_url: impl Into<String>) -> ProviderSpec {
    ProviderSpec::new(PROVIDER, Dialect::OpenaiChat, base_url)
}

/// The providers of one specification.
pub(crate) fn providers(spec: ProviderSpec) -> Providers {
    Providers::build(&[spec]).unwrap()
}

/// A call of one user message.
pub(crate) fn asking(text: &str) -> ModelCall {
    ModelCall {
        messages: vec![Message::text(Role::User, text)],
        ..ModelCall::default()
    }
}

/// An attempt at the test provider.
pub(crate) fn attempt(call: ModelCall) -> ProviderRequest {
    let target = Target {
        id: TargetId::from("fake/test-model"),
        provider: PROVIDER.into(),
        family: PROVIDER.into(),
        dialect: Dialect::OpenaiChat,
        model: "test-model".into(),
        credential: "".into(),
        endpoint: "".into(),
        capabilities: Capabilities::default(),
        system_prompt: None,
    };
    ProviderRequest {
        tool: None,
        invocation: InvocationId::from("test-invocation"),
        attempt: 1,
        target: Arc::new(target),
        call: Arc::new(call),
        wording: DialectOverrides::default(),
        form: CompletionForm::Pieces,
        deadline: Instant::now() + Duration::from_mins(1),
        idle: None,
        trace: TraceContext::default(),
        sent_to: SentTo::default(),
        background: BackgroundResponses::default(),
        attach: None,
    }
}

/// All that came of an attempt.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Everything before the end or the error.
    pub(crate) deltas: Vec<Delta>,
    /// The error that ended it.
    pub(crate) error: Option<ProviderError>,
}

/// Makes an attempt and reads all of it.
pub(crate) async fn ask(providers: &Providers, call: ProviderRequest) -> Seen {
    let mut seen = Seen::default();
    match providers.clone().ready().await.unwrap().call(call).await {
        Err(error) => seen.error = Some(error),
        Ok(mut stream) => {
            while let Some(next) = stream.next().await {
                assert!(
                    seen.error.is_none(),
                    "something came after the error: {next:?}"
                );
                match next {
                    Ok(delta) => seen.deltas.push(delta),
                    Err(error) => seen.error = Some(*error),
                }
            }
        }
    }
    seen
}

// === impl Seen ===

impl Seen {
    /// The text of all blocks of that kind, in order.
    pub(crate) fn text_of(&self, wanted: &BlockKind) -> String {
        let of_kind = |block: u32| {
            self.deltas
                .iter()
                .any(|delta| matches!(delta, Delta::BlockStart { block: it, kind } if *it == block && kind == wanted))
        };
        let texts = self.deltas.iter().filter_map(|delta| match delta {
            Delta::BlockDelta { block, text } if of_kind(*block) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The text for the reader.
    pub(crate) fn text(&self) -> String {
        self.text_of(&BlockKind::Text)
    }

    /// The tool calls: id, name, arguments, and whether the call is whole.
    pub(crate) fn tool_calls(&self) -> Vec<(String, String, String, bool)> {
        let calls = self.deltas.iter().filter_map(|delta| match delta {
            Delta::BlockStart {
                block,
                kind: BlockKind::ToolCall { id, name },
            } => Some((*block, id, name)),
            _ => None,
        });
        let call = |(block, id, name): (u32, &String, &String)| {
            let pieces = self.deltas.iter().filter_map(|delta| match delta {
                Delta::BlockDelta { block: it, text } if *it == block => Some(text.as_str()),
                _ => None,
            });
            let stopped = self
                .deltas
                .iter()
                .any(|delta| matches!(delta, Delta::BlockStop { block: it, .. } if *it == block));
            (id.clone(), name.clone(), pieces.collect(), stopped)
        };
        calls.map(call).collect()
    }

    /// Why the model stopped, if the answer is whole.
    pub(crate) fn finish(&self) -> Option<FinishReason> {
        let last = self.deltas.last()?;
        match last {
            Delta::Finish { reason, .. } => Some(*reason),
            _ => None,
        }
    }

    /// The last reported usage.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.deltas.iter().rev().find_map(|delta| match delta {
            Delta::Usage(usage) => Some(*usage),
            _ => None,
        })
    }

    /// The error that must have come.
    pub(crate) fn failed(&self) -> &ProviderError {
        assert_eq!(self.finish(), None, "a failed attempt looks whole");
        self.error
            .as_ref()
            .unwrap_or_else(|| panic!("no error came: {:?}", self.deltas))
    }
}
