//! `relight demo tools`: an agent's tools fail in the ways that they do fail, and Relight recovers
//! each call or explains it.
//!
//! The server is the real one and is called over gRPC; its tool servers are MCP servers in this
//! process, behind real sockets, whose tools are scripted.

use relight_lab::wire_server::{
    WireServer,
    mcp::{McpScript, ScriptedTool},
};
use std::{io, process::ExitCode, time::Duration};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::{
    DemoArguments, LONGEST_SCENE, PAUSE, loaded,
    scene::Played,
    stage::Stage,
    tool_stories::{SETTINGS, STORIES, Story, StoryCall, StoryEnd},
};
use crate::{
    cli::{
        Output,
        terminal::{Paint, Table, one_line, print_line, print_note},
    },
    grpc::v1::{self, invoke_with_recovery_response::Outcome},
    server::{Listeners, Running, ServerOptions},
};

/// A story with its tool servers.
struct Staged {
    story: &'static Story,
    server: StagedServer,
    new_version: Option<StagedServer>,
}

/// A tool server of a story.
struct StagedServer {
    script: McpScript,
    wire: WireServer,
}

/// Time that an agent thinks between two calls of a version on trial, which is judged meanwhile.
const THOUGHT: Duration = Duration::from_millis(200);

/// Plays all stories.
pub(super) async fn show(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let mut staged = Vec::new();
    for story in &STORIES {
        let server = StagedServer::start((story.tools)()).await?;
        let new_version = match story.new_version {
            Some(tools) => Some(StagedServer::start(tools()).await?),
            None => None,
        };
        staged.push(Staged {
            story,
            server,
            new_version,
        });
    }
    let text = configuration(&staged);
    if arguments.print_config {
        print_line(text.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    let loaded = loaded(&text)?;
    let listeners = Listeners::bind(&loaded.config).await?;
    let options = ServerOptions {
        skip_pause: true,
        ..ServerOptions::default()
    };
    let running = Running::start(&loaded, listeners, &options).await?;
    let paint = match arguments.output {
        Output::Text => Some(Paint::on(&io::stdout())),
        Output::Json => None,
    };
    if let Some(paint) = paint {
        print_line(
            &paint.bold(
                "Relight demo: an agent's tools fail in five ways, and no call ends without a result or a reason.",
            ),
        )?;
        print_line(&paint.dim(&format!(
            "A real server on {}, called over gRPC; its tool servers are MCP servers behind real sockets, with scripted \
             tools.",
            running.address
        )))?;
    }
    let shown = play(arguments, &staged, &running, paint).await;
    running.shutdown().await;
    let shown = shown?;
    match paint {
        Some(paint) => conclude(&shown, paint)?,
        None => print_line(&serde_json::to_string_pretty(
            &json!({ "stories": summary(&shown) }),
        )?)?,
    }
    for (story, _, broken) in &shown {
        if let Some(reason) = broken {
            print_note(&format!(
                "relight: not as promised: {}: {reason}",
                story.title
            ));
        }
    }
    let as_promised = shown.iter().all(|(_, _, broken)| broken.is_none());
    Ok(if as_promised {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

// === impl StagedServer ===

impl StagedServer {
    async fn start(tools: Vec<ScriptedTool>) -> io::Result<Self> {
        let script = McpScript::new(tools);
        let wire = WireServer::start().await?;
        script.play_on(&wire);
        Ok(Self { script, wire })
    }
}

/// A story, what came of it, and what was not as promised.
type ShownStory = (&'static Story, Played, Option<String>);

async fn play(
    arguments: &DemoArguments,
    staged: &[Staged],
    running: &Running,
    paint: Option<Paint>,
) -> anyhow::Result<Vec<ShownStory>> {
    let mut stage = Stage::open(running.address, paint).await?;
    let mut shown = Vec::new();
    for (
        number,
        Staged {
            story,
            server,
            new_version,
        },
    ) in (1..).zip(staged)
    {
        if let Some(paint) = paint {
            print_line("")?;
            print_line(&paint.bold(&format!("{number}  {}", story.title)))?;
            print_line(&paint.dim(&format!("   {}", story.story)))?;
            if !arguments.fast {
                tokio::time::sleep(PAUSE).await;
            }
        }
        let mut played = Played::default();
        for call in story.calls {
            (call.before)(&server.script);
            if let Some(paint) = paint {
                print_line(&format!(
                    "   {}  {}({})",
                    paint.dim("the agent calls"),
                    call.tool,
                    call.arguments
                ))?;
            }
            let playing =
                tokio::time::timeout(LONGEST_SCENE, stage.play_call(request(call), &mut played))
                    .await;
            playing.with_context(|| {
                format!("{}: took longer than {LONGEST_SCENE:?}", story.title)
            })??;
            if let (Some(paint), Some(response)) = (paint, played.responses.last()) {
                for line in explained(response) {
                    print_line(&format!("   {}  {line}", paint.dim("Relight says")))?;
                }
            }
            if new_version.is_some() {
                tokio::time::sleep(THOUGHT).await;
            }
        }
        let called_new = new_version
            .as_ref()
            .map(|server| server.script.calls())
            .unwrap_or_default();
        let end = StoryEnd {
            responses: &played.responses,
            called: server.script.calls(),
            called_new,
        };
        let broken = (story.promise)(&end).err();
        if let Some(paint) = paint {
            let verdict = match &broken {
                None => paint.green(&format!("✓ {}", story.moral)),
                Some(reason) => paint.red(&format!("✗ not as promised: {reason}")),
            };
            print_line(&format!("   {verdict}"))?;
        }
        shown.push((*story, played, broken));
    }
    Ok(shown)
}

/// Returns the lines that Relight adds about a call beside its result.
fn explained(response: &v1::InvokeWithRecoveryResponse) -> Vec<String> {
    match &response.outcome {
        Some(Outcome::Completion(completion)) => {
            let output = completion
                .tool_output
                .iter()
                .filter(|output| !output.reasoning.is_empty());
            output.map(|output| one_line(&output.reasoning)).collect()
        }
        Some(Outcome::Failure(failure)) => {
            let reasoning = failure.reasoning.split("\n\n").next().map(one_line);
            let instead = failure
                .alternatives
                .iter()
                .map(|instead| format!("Instead: {}", one_line(&instead.reason)));
            reasoning.into_iter().chain(instead).collect()
        }
        None => Vec::new(),
    }
}

fn request(call: &StoryCall) -> v1::InvokeWithRecoveryRequest {
    let tool = v1::ToolCall {
        name: call.tool.to_owned(),
        arguments_json: call.arguments.to_owned(),
        goal: call.goal.to_owned(),
        ..v1::ToolCall::default()
    };
    let call = Some(v1::invocation::Call::Tool(tool));
    v1::InvokeWithRecoveryRequest {
        invocation: Some(v1::Invocation {
            call,
            ..v1::Invocation::default()
        }),
    }
}

fn configuration(staged: &[Staged]) -> String {
    let line = |name: &str, server: &StagedServer| {
        format!(
            "    {name}: {{ url: \"http://{}/mcp\" }}\n",
            server.wire.address()
        )
    };
    let lines = |Staged {
                     story,
                     server,
                     new_version,
                 }: &Staged| {
        let new = new_version
            .as_ref()
            .map(|new| line(&format!("{}-v2", story.name), new));
        line(story.name, server) + &new.unwrap_or_default()
    };
    let servers: String = staged.iter().map(lines).collect();
    format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\" }}\ntools:\n  servers:\n{servers}{SETTINGS}"
    )
}

fn conclude(shown: &[ShownStory], paint: Paint) -> io::Result<()> {
    print_line("")?;
    print_line(&paint.bold("What the agent got"))?;
    let mut table = Table::new(&["STORY", "CALLS", "ATTEMPTS", "RECOVERED BY", "LAST RESULT"]);
    for (story, played, _) in shown {
        table.row(vec![
            story.name.to_owned(),
            played.responses.len().to_string(),
            played.attempts().to_string(),
            Some(played.recovered_by())
                .filter(|by| by != "nothing")
                .unwrap_or_else(|| "-".to_owned()),
            played.last_reply(),
        ]);
    }
    for line in table.lines() {
        print_line(&format!("   {line}"))?;
    }
    print_line("")?;
    print_line(&paint.bold("Where to look next"))?;
    for (command, what) in [
        (
            "relight demo tools --print-config",
            "the configuration behind this, to start your own from",
        ),
        (
            "relight invoke --tool NAME",
            "call a tool, and see what is done for it",
        ),
        (
            "relight executions",
            "every execution of a tool, with its arguments",
        ),
        (
            "relight learning",
            "what was learnt from that, to look at or to forget",
        ),
        (
            "relight releases",
            "which versions are on trial, and why one was rolled back",
        ),
    ] {
        print_line(&format!("   {command:<36}{}", paint.dim(what)))?;
    }
    Ok(())
}

fn summary(shown: &[ShownStory]) -> Vec<Value> {
    let story = |(story, played, broken): &ShownStory| {
        json!({
            "story": story.name,
            "as_promised": broken.is_none(),
            "broken": broken,
            "calls": played.responses.len(),
            "attempts": played.attempts(),
            "recovered_by": played.recovered_by(),
            "result": played.last_reply(),
        })
    };
    shown.iter().map(story).collect()
}
