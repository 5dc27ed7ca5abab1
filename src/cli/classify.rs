//! `relight classify`: the class of a failure, whether a retry helps, and the reason. Needs no
//! server.
//!
//! A failure is pasted (a text, a body, a whole HTTP response) or piped as lines of JSON, which
//! come back as lines of JSON. It is judged by the rules of this version, and before them by those
//! of a configuration if one is given.

mod lines;
mod report;
mod source;

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use crate::{
    config::{self, ProcessEnvironment},
    domain::{
        clock::wall_now,
        failure::{ProviderError, Surface},
    },
    policy::{classify::Classifier, corpus},
};
use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};

use self::{lines::InputLines, source::Pasted};
use super::{
    Output,
    config::{print_faults, print_warnings},
    key_value,
    terminal::{Paint, print_line, print_note},
};

const EXAMPLES: &str = "\
Examples:
  relight classify --status 429 --header retry-after=2 \"Rate limit reached\"
  curl -si https://api.example.com/v1/… | relight classify        status, headers and body as they came
  relight classify --config relight.yaml \"house limit\"            with the rules of a configuration, too
  relight classify --explain \"insufficient_quota\"                 which other rules would hold, too
  relight classify --jsonl < failures.jsonl > verdicts.jsonl      each line as it comes
  relight classify --score labelled.jsonl                         how often the classifier agrees with labels

A line of JSON holds: id, provider, surface (http, transport, stream, grpc, tool), status, headers, body, message.";

/// Largest input that is judged.
const MAX_INPUT_BYTES: u64 = 256 << 20;

/// The failure to classify.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ClassifyArguments {
    /// The failure's text; without it (and without --body), standard input.
    text: Vec<String>,
    /// The HTTP status.
    #[arg(long, value_name = "STATUS", value_parser = clap::value_parser!(u16).range(100..600))]
    status: Option<u16>,
    /// A header field of the response; may be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// Source of the failure: the provider, gateway, library or tool.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    provider: String,
    /// Place where it was seen.
    #[arg(long, value_enum, default_value_t)]
    surface: FailureSource,
    /// The body of the response; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    body: Option<PathBuf>,
    /// The configuration whose `classifier.rules` are tried first; it is checked as a server checks
    /// it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Read lines of JSON from standard input and write lines of JSON, each as soon as it has come.
    #[arg(long, conflicts_with_all = ["text", "status", "headers", "body", "score"])]
    jsonl: bool,
    /// Compare with the labels of these lines of JSON (`class`, `retryable_same_target`, …).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "status", "headers", "body"])]
    score: Option<PathBuf>,
    /// List the built-in rules that would hold besides the deciding one, in their order.
    #[arg(long, conflicts_with_all = ["jsonl", "score"])]
    explain: bool,
    /// With --score: list every verdict that differs from its label.
    #[arg(long, requires = "score")]
    misses: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Place where a failure was observed.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
enum FailureSource {
    /// A provider's or gateway's HTTP response.
    #[default]
    Http,
    /// No response: socket, DNS, TLS, child process.
    Transport,
    /// After the stream started, or an error event inside a 200.
    Stream,
    /// A gRPC status.
    Grpc,
    /// A tool.
    Tool,
}

/// Judges.
pub(super) fn run(arguments: &ClassifyArguments) -> anyhow::Result<ExitCode> {
    let classifier = match &arguments.config {
        None => Classifier::new(),
        Some(file) => match config::load(Some(file), &ProcessEnvironment) {
            Ok(loaded) => {
                print_warnings(&loaded);
                // What is wrong with a rule is a fault of the file already.
                Classifier::with_rules(&loaded.config.classifier.rules)
                    .map_err(|faults| anyhow!("{}: classifier.rules: {faults:?}", file.display()))?
            }
            Err(faults) => return Ok(print_faults(&faults)),
        },
    };
    if let Some(file) = &arguments.score {
        return score(&classifier, file, arguments);
    }
    let given = !arguments.text.is_empty() || arguments.body.is_some();
    if arguments.jsonl || (!given && !io::stdin().is_terminal()) {
        let mut input = InputLines::new(stdin());
        let bare = arguments.status.is_none() && arguments.headers.is_empty();
        if arguments.jsonl || (bare && source::is_jsonl(input.first()?)) {
            return lines::judge_each(&classifier, input);
        }
        let text = input.rest()?;
        if !text.trim().is_empty() || arguments.status.is_some() {
            return judge(&classifier, &arguments.error(Some(text)), arguments);
        }
    }
    if !given && arguments.status.is_none() {
        bail!(
            "there is nothing to classify; write it as an argument, pipe it in, or give --status or --body"
        );
    }
    let body = match arguments.body.as_deref() {
        Some(path) if path == Path::new("-") => Some(InputLines::new(stdin()).rest()?),
        Some(path) => Some(read_file(path)?),
        None => None,
    };
    judge(&classifier, &arguments.error(body), arguments)
}

fn judge(
    classifier: &Classifier,
    error: &ProviderError,
    arguments: &ClassifyArguments,
) -> anyhow::Result<ExitCode> {
    let verdict = classifier.classify(error, wall_now());
    let also = arguments.explain.then(|| classifier.also_holding(error));
    match arguments.output {
        Output::Json => {
            let verdict = report::json(&verdict, also.as_deref());
            print_line(&serde_json::to_string_pretty(&verdict)?)?;
        }
        Output::Text => {
            for line in report::lines(&verdict, also.as_deref(), Paint::on(&io::stdout())) {
                print_line(&line)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn score(
    classifier: &Classifier,
    file: &Path,
    arguments: &ClassifyArguments,
) -> anyhow::Result<ExitCode> {
    let items = corpus::read(&read_file(file)?)
        .map_err(|reason| anyhow!("{}: {reason}", file.display()))?;
    let score = corpus::score(classifier, &items);
    if score.items == 0 {
        bail!("{}: no line has labels", file.display());
    }
    match arguments.output {
        Output::Json => print_line(&serde_json::to_string_pretty(&report::score_json(
            &score,
            arguments.misses,
        ))?)?,
        Output::Text => {
            print_line(score.to_string().trim_end())?;
            if arguments.misses {
                print_line("")?;
                for line in report::misses(&score).lines() {
                    print_line(&line)?;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Standard input, announced if people write it.
fn stdin() -> io::StdinLock<'static> {
    if io::stdin().is_terminal() {
        print_note("Reading the failure from standard input; end it with ctrl-d.");
    }
    io::stdin().lock()
}

fn read_file(path: &Path) -> anyhow::Result<String> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads `name=value`, or `name: value` as headers are pasted.
fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once(':').filter(|(name, _)| !name.contains('=')) {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        Some(_) | None => key_value(text),
    }
}

// === impl ClassifyArguments ===

impl ClassifyArguments {
    /// Returns the facts; arguments take precedence over what the pasted HTTP response states.
    fn error(&self, body: Option<String>) -> ProviderError {
        let pasted = body.map(|body| Pasted::read(&body)).unwrap_or_default();
        let given = self
            .headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()));
        ProviderError {
            provider: self.provider.as_str().into(),
            surface: self.surface.into(),
            status: self.status.or(pasted.status),
            headers: given.chain(pasted.headers).collect(),
            body: Some(pasted.body).filter(|body| !body.trim().is_empty()),
            message: (!self.text.is_empty()).then(|| self.text.join(" ")),
            ..ProviderError::default()
        }
    }
}

impl From<FailureSource> for Surface {
    fn from(seen: FailureSource) -> Self {
        match seen {
            FailureSource::Http => Self::Http,
            FailureSource::Transport => Self::Transport,
            FailureSource::Stream => Self::Stream,
            FailureSource::Grpc => Self::Grpc,
            FailureSource::Tool => Self::Tool,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_given_as_a_pair_or_as_it_was_pasted() {
        assert_eq!(
            header("retry-after=2"),
            Ok(("retry-after".to_owned(), "2".to_owned()))
        );
        assert_eq!(
            header("Retry-After: 2"),
            Ok(("Retry-After".to_owned(), "2".to_owned()))
        );
        assert_eq!(
            header("date=Mon 10:00"),
            Ok(("date".to_owned(), "Mon 10:00".to_owned()))
        );
        assert!(header("retry-after").is_err());
    }
}
