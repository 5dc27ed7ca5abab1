//! `relight invoke`: sends one question through a server, and shows its recovery as it happens.
//!
//! The question is sent as a stream that outlives its connection and this process: `--resume`
//! continues it. Only the completion is written to standard output, so that it can be piped; retries
//! are written to standard error.

mod live;
mod memory;
mod report;

use std::{
    io::{self, IsTerminal as _, Read as _},
    process::ExitCode,
    time::Duration,
};

use crate::{
    domain::units,
    grpc::{
        convert::time::millis,
        v1::{
            self, invoke_with_recovery_response::Outcome, recovery_event::Body,
            stream_with_recovery_request::Start,
        },
    },
};
use anyhow::bail;
use clap::Args;
use tonic::{Request, Status, Streaming};
use uuid::Uuid;

#[cfg(feature = "lab")]
pub(super) use self::report::answer as answer_text;
pub(super) use self::report::attempts as attempts_table;
use self::{live::Live, memory::Memory};
use super::{
    Output,
    client::{RESPONSE_LIMIT, RecoveryClient, ResponseLimit, ServerArguments, Unreachable},
    event_line,
    json::json,
    key_value,
    refusal::ServerRefusal,
    terminal::{Paint, end_line, print_line, print_note, printable},
};

const EXAMPLES: &str = "\
Examples:
  relight invoke \"Why is the sky blue?\"
  git diff | relight invoke --system \"Review this change.\" --route careful --deadline 2m
  relight invoke --resume                        after a kill or a crash: goes on with the last one
  relight invoke --tool get_activities --arguments '{\"from\": \"2024-01-01\"}' --goal \"my training\"
  relight invoke --output json --label team=blue \"Say hello\" | jq .attempts";

/// The label by which the events of this very call are found.
const OWN_LABEL: &str = "relight.cli";

/// Time for which events that were sent before the completion may still arrive.
const LAST_EVENTS: Duration = Duration::from_millis(300);

/// Time after its deadline for which an invocation may still be reported by the server.
const MARGIN: Duration = Duration::from_secs(5);

/// Arguments of a call, which one that is continued has already.
const OF_A_CALL: [&str; 12] = [
    "text",
    "tool",
    "arguments",
    "goal",
    "route",
    "operation",
    "system",
    "max_retries",
    "deadline",
    "labels",
    "request_id",
    "thread",
];

/// The question, and how to recover.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct InvokeArguments {
    /// The question; without it, standard input.
    text: Vec<String>,
    /// Tool to call in place of a model (`NAME`, or `SERVER/NAME`); there is no question then.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["text", "system"])]
    tool: Option<String>,
    /// The tool's arguments, a JSON object; `-` reads it from standard input.
    #[arg(
        long,
        value_name = "JSON",
        default_value = "{}",
        hide_default_value = true,
        requires = "tool",
        conflicts_with = "text"
    )]
    arguments: String,
    /// Purpose of the tool call, in a few words: earlier attempts at it are remembered.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        requires = "tool",
        conflicts_with = "text"
    )]
    goal: String,
    /// The route; without it, the server's default.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    route: String,
    /// Operation of the caller (`executor`, `planner`, …); selects policies and labels everything.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    operation: String,
    /// The system message before the question.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Attempts after the first, over all targets.
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// Time that it may take (`30s`, `2m`), retries and waits included.
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    deadline: Option<Duration>,
    /// A label, for filters of events, log lines and traces; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    labels: Vec<(String, String)>,
    /// Makes repeating this very request safe.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    request_id: String,
    /// The conversation that Relight keeps for the caller.
    #[arg(long, value_name = "ID", default_value = "", hide_default_value = true)]
    thread: String,
    /// Continue the invocation that was followed last, or that of a resume token, instead of
    /// sending a question.
    #[arg(long, value_name = "TOKEN", num_args = 0..=1, require_equals = true, conflicts_with_all = OF_A_CALL)]
    #[expect(
        clippy::option_option,
        reason = "not given, given alone, given with a token"
    )]
    resume: Option<Option<String>>,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    server: ServerArguments,
}

/// Sends the question; exits with code 1 if there is no completion.
pub(super) fn run(arguments: &InvokeArguments) -> anyhow::Result<ExitCode> {
    if let Some(token) = &arguments.resume {
        return super::client_runtime()?.block_on(resume(arguments, token.clone()));
    }
    let text = match (&arguments.tool, arguments.arguments.as_str()) {
        (Some(_), "-") => io::read_to_string(io::stdin())?,
        (Some(_), given) => given.to_owned(),
        (None, _) => question(&arguments.text)?,
    };
    super::client_runtime()?.block_on(invoke(arguments, text))
}

/// Continues an earlier invocation.
async fn resume(arguments: &InvokeArguments, token: Option<String>) -> anyhow::Result<ExitCode> {
    let memory = Memory::of_user();
    let Some(token) = token.or_else(|| memory.recall()) else {
        bail!("there is nothing to resume: the last answer arrived, or there was no earlier call");
    };
    let mut client = arguments.server.recovery().await?;
    let start = Start::Resume(v1::Resume {
        // Without a cursor: a new process shows the completion from its start.
        invocation: Some(v1::resume::Invocation::Token(token)),
        cursor: None,
        answer_view: v1::AnswerView::Repeated.into(),
    });
    let mut live = Live::new(arguments.output == Output::Text);
    let response = live.follow(&mut client, start, &memory).await?;
    conclude(arguments.output, &response, live.was_shown())
}

async fn invoke(arguments: &InvokeArguments, text: String) -> anyhow::Result<ExitCode> {
    let own = Uuid::now_v7().to_string();
    let mut client = arguments.server.recovery().await?;
    // Started before the call, so that no event is missed. A server that accepts calls of this
    // caller may not allow it to watch; the completion is what matters.
    let events = match watch(&mut client, &own, arguments.longest()).await {
        Err(status) if Unreachable::is_silence(&status) => {
            return Err(ServerRefusal::from(status).into());
        }
        events => events.ok(),
    };
    let calling = call(arguments, &mut client, events, text, own);
    let Some(longest) = arguments.longest() else {
        return calling.await;
    };
    if let Ok(ended) = tokio::time::timeout(longest, calling).await {
        return ended;
    }
    end_line();
    bail!(
        "the server did not end the call within its deadline, nor {} later",
        units::duration_text(MARGIN)
    );
}

/// Calls, shows what happens meanwhile, and reports the end.
async fn call(
    arguments: &InvokeArguments,
    client: &mut RecoveryClient,
    mut events: Option<Streaming<v1::WatchRecoveryResponse>>,
    text: String,
    own: String,
) -> anyhow::Result<ExitCode> {
    let paint = Paint::on(&io::stderr());
    let response = match arguments.output {
        Output::Json => {
            let mut request = Request::new(v1::InvokeWithRecoveryRequest {
                invocation: Some(arguments.invocation(text, own)),
            });
            // Its response is its end.
            request.extensions_mut().insert(ResponseLimit(None));
            let response = client
                .invoke_with_recovery(request)
                .await
                .map_err(ServerRefusal::from)?
                .into_inner();
            return conclude(arguments.output, &response, false);
        }
        Output::Text => {
            let memory = Memory::of_user();
            let mut live = Live::new(events.is_none());
            let start = Start::Invocation(arguments.streamed(text, own, live.mode()));
            let response = {
                let following = live.follow(client, start, &memory);
                tokio::pin!(following);
                loop {
                    tokio::select! {
                        biased;
                        event = next(&mut events) => arguments.show(&event, paint),
                        response = &mut following => break response?,
                    }
                }
            };
            let shown = live.was_shown();
            (response, shown)
        }
    };
    let rest = async {
        while events.is_some() {
            let event = next(&mut events).await;
            if is_end(&event) {
                break;
            }
            arguments.show(&event, paint);
        }
    };
    // What is not there by then would only be a line on standard error.
    let _ = tokio::time::timeout(LAST_EVENTS, rest).await;
    conclude(arguments.output, &response.0, response.1)
}

/// Returns the question on the command line, or standard input.
fn question(words: &[String]) -> anyhow::Result<String> {
    let text = if words.is_empty() {
        if io::stdin().is_terminal() {
            print_note("Reading the question from standard input; end it with ctrl-d.");
        }
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        text
    } else {
        words.join(" ")
    };
    if text.trim().is_empty() {
        bail!("there is no question; write it as an argument or on standard input");
    }
    Ok(text)
}

/// Watches the events of this call; the watch is to be established within `longest`, and soon in
/// any case.
async fn watch(
    client: &mut RecoveryClient,
    own: &str,
    longest: Option<Duration>,
) -> Result<Streaming<v1::WatchRecoveryResponse>, Status> {
    let filter = v1::RecoveryEventFilter {
        labels: [(OWN_LABEL.to_owned(), own.to_owned())].into(),
        ..v1::RecoveryEventFilter::default()
    };
    let start = Some(v1::watch_recovery_request::Start::Live(true));
    let limit = longest.map_or(RESPONSE_LIMIT, |longest| longest.min(RESPONSE_LIMIT));
    let mut request = Request::new(v1::WatchRecoveryRequest {
        filter: Some(filter),
        start,
    });
    request.extensions_mut().insert(ResponseLimit(Some(limit)));
    let mut events = client.watch_recovery(request).await?.into_inner();
    // The first message of a watch confirms that it is established.
    let established = tokio::time::timeout(limit, events.message()).await;
    established.map_err(|_| Status::deadline_exceeded("the watch sent nothing"))??;
    Ok(events)
}

/// Returns the next event; pending for ever once the watch has ended.
async fn next(events: &mut Option<Streaming<v1::WatchRecoveryResponse>>) -> v1::RecoveryEvent {
    loop {
        let Some(open) = events else {
            return std::future::pending().await;
        };
        match open.message().await {
            Ok(Some(response)) => {
                if let Some(event) = response.event {
                    return event;
                }
            }
            Ok(None) | Err(_) => *events = None,
        }
    }
}

fn is_end(event: &v1::RecoveryEvent) -> bool {
    matches!(
        event.body,
        Some(
            Body::InvocationSucceeded(_) | Body::InvocationRecovered(_) | Body::InvocationFailed(_)
        )
    )
}

/// Reports the end; a completion that was `shown` as it came is not shown again.
fn conclude(
    output: Output,
    response: &v1::InvokeWithRecoveryResponse,
    shown: bool,
) -> anyhow::Result<ExitCode> {
    let failed = !matches!(response.outcome, Some(Outcome::Completion(_)));
    match (output, &response.outcome) {
        (Output::Json, _) => {
            print_line(&serde_json::to_string_pretty(&json(
                "InvokeWithRecoveryResponse",
                response,
            )?)?)?;
        }
        (Output::Text, Some(Outcome::Completion(completion))) => {
            // Tool calls and refusals are shown only when they are final.
            let shown = shown && report::answer(completion) == completion.text;
            if !shown {
                print_line(printable(&report::answer(completion)).trim_end())?;
            }
            for line in report::recovered(response)
                .into_iter()
                .chain(report::tool(completion))
            {
                print_note(&Paint::on(&io::stderr()).dim(&line));
            }
        }
        (Output::Text, Some(Outcome::Failure(failure))) => {
            for line in report::failure(failure, response, Paint::on(&io::stderr())) {
                print_note(&line);
            }
        }
        (Output::Text, None) => bail!("the server answered without an outcome"),
    }
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

// === impl InvokeArguments ===

impl InvokeArguments {
    /// Returns the time that the command waits for the end, if the call has a deadline.
    fn longest(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_add(MARGIN))
    }

    fn invocation(&self, text: String, own: String) -> v1::Invocation {
        let system = self.system.iter().map(|system| v1::Message {
            role: v1::Role::System.into(),
            text: system.clone(),
            ..v1::Message::default()
        });
        let call = if let Some(name) = &self.tool {
            v1::invocation::Call::Tool(v1::ToolCall {
                name: name.clone(),
                arguments_json: text,
                goal: self.goal.clone(),
                ..v1::ToolCall::default()
            })
        } else {
            let messages = system.collect();
            v1::invocation::Call::Model(v1::ModelCall {
                messages,
                text,
                ..v1::ModelCall::default()
            })
        };
        let mut labels: std::collections::HashMap<String, String> =
            self.labels.iter().cloned().collect();
        labels.insert(OWN_LABEL.to_owned(), own);
        let deadline_ms = self.deadline.map(millis);
        let overrides = v1::Overrides {
            max_retries: self.max_retries,
            deadline_ms,
            ..v1::Overrides::default()
        };
        v1::Invocation {
            route: self.route.clone(),
            operation: self.operation.clone(),
            call: Some(call),
            request_id: self.request_id.clone(),
            thread_id: self.thread.clone(),
            labels,
            overrides: (overrides != v1::Overrides::default()).then_some(overrides),
            answer_view: v1::AnswerView::Repeated.into(),
        }
    }

    /// Returns the invocation as a stream that continues when its connection is lost.
    fn streamed(&self, text: String, own: String, mode: v1::RewindMode) -> v1::Invocation {
        let mut invocation = self.invocation(text, own);
        let overrides = invocation.overrides.get_or_insert_default();
        overrides.resumable = Some(v1::Resumable::default());
        if mode != v1::RewindMode::Atomic {
            overrides.rewind_mode = mode.into();
        }
        invocation
    }

    /// Shows the actions, if people are to read them.
    fn show(&self, event: &v1::RecoveryEvent, paint: Paint) {
        let uneventful = matches!(
            event.body,
            Some(Body::InvocationStarted(_) | Body::AttemptStarted(_))
        );
        if self.output == Output::Json || uneventful || is_end(event) {
            return;
        }
        if let Some(words) = event_line::what(event) {
            print_note(&event_line::painted(event, &words, paint));
        }
    }
}
