//! The servers of `relight demo --provider`: scripted, on real sockets, in one provider's dialect.

use relight_lab::wire_server::{
    Request, WireServer,
    answers::{self, Answers},
};
use std::io;

use crate::domain::target::Dialect;
use clap::ValueEnum;

/// The configuration, with places to fill in.
const CONFIG: &str = include_str!("wires.yaml");

/// Answer of the failing server while it does not fail.
pub(super) const STORY: &str = "Sunlight is made of all colours. Air scatters the blue ones most, so blue reaches us from everywhere.";

/// The provider whose responses are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Provider {
    /// Chat completions.
    Openai,
    /// The Responses API.
    Responses,
    /// Anthropic's Messages API.
    Anthropic,
    /// Google's `generateContent`.
    Gemini,
    /// AWS Bedrock's Converse API.
    Bedrock,
}

/// A server that fails, and one that does not.
pub(super) struct Wires {
    provider: Provider,
    pub(super) main: WireServer,
    pub(super) spare: WireServer,
}

// === impl Provider ===

impl Provider {
    /// Returns the provider's name for people.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Openai => "OpenAI (chat completions)",
            Self::Responses => "OpenAI (Responses)",
            Self::Anthropic => "Anthropic",
            Self::Gemini => "Gemini",
            Self::Bedrock => "Bedrock",
        }
    }

    const fn dialect(self) -> Dialect {
        match self {
            Self::Openai => Dialect::OpenaiChat,
            Self::Responses => Dialect::OpenaiResponses,
            Self::Anthropic => Dialect::Anthropic,
            Self::Gemini => Dialect::Gemini,
            Self::Bedrock => Dialect::Bedrock,
        }
    }

    /// Returns the family, the model, and the start of its API's path behind the host.
    const fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Openai | Self::Responses => ("openai", "gpt-5", "/v1"),
            Self::Anthropic => ("anthropic", "claude-haiku-4-5", ""),
            Self::Gemini => ("gemini", "gemini-2.5-flash", "/v1beta"),
            Self::Bedrock => ("bedrock", "anthropic.claude-haiku-4-5-20251001-v1:0", ""),
        }
    }
}

// === impl Wires ===

impl Wires {
    /// Starts both wires.
    pub(super) async fn start(provider: Provider) -> io::Result<Self> {
        let wires = Self {
            provider,
            main: WireServer::start().await?,
            spare: WireServer::start().await?,
        };
        let text = wires.answers().text;
        wires.main.otherwise(move |_| text(STORY));
        wires.spare.otherwise(move |_| text("The spare answers."));
        Ok(wires)
    }

    /// Returns the configuration that leads to them.
    pub(super) fn config(&self) -> String {
        let (family, model, path) = self.provider.place();
        let url = |server: &WireServer| format!("http://{}{path}", server.address());
        let dialect = self.provider.dialect().as_str();
        let places = [
            ("{dialect}", dialect),
            ("{family}", family),
            ("{model}", model),
        ];
        let text = places
            .iter()
            .fold(CONFIG.to_owned(), |text, (place, value)| {
                text.replace(place, value)
            });
        text.replace("{main}", &url(&self.main))
            .replace("{spare}", &url(&self.spare))
    }

    /// Returns the number of requests both wires saw.
    pub(super) fn seen(&self) -> [usize; 2] {
        [self.main.requests().len(), self.spare.requests().len()]
    }

    /// Returns the requests that the wire that breaks saw since then, and the number that the spare
    /// did.
    pub(super) fn since(&self, seen: [usize; 2]) -> (Vec<Request>, usize) {
        let main = self.main.requests().split_off(seen[0]);
        (main, self.spare.requests().len() - seen[1])
    }

    /// Returns the responses of this provider.
    pub(super) const fn answers(&self) -> Answers {
        answers::of(self.provider.dialect())
    }
}
