//! `relight demo`: the real server, a scripted model that fails in five ways, and how Relight
//! recovers.
//!
//! With `--provider`, one provider's connection fails in that provider's own way instead. Only the
//! model is scripted: the server is the one that `serve` runs, called over a gRPC connection, and
//! the timeline is what any watcher of it receives. Exits with code 1 when a scene was not
//! recovered as promised.

mod scene;
mod scenes;
mod stage;
mod tool_stories;
mod tools;
mod wire_scenes;
mod wires;

use std::{io, process::ExitCode, time::Duration};

use crate::{
    config::{self, GivenEnvironment, Loaded},
    server::{Listeners, Running, ServerOptions},
};
use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use self::{
    scene::{Played, Scene},
    scenes::SCENES,
    stage::Stage,
    wires::{Provider, Wires},
};
use super::{
    Output,
    terminal::{Paint, Table, print_line, print_note, span},
};

/// Configuration that the demo serves.
const CONFIG: &str = include_str!("demo/relight.yaml");

/// So that people can read a scene's title before it plays.
const PAUSE: Duration = Duration::from_millis(700);

/// No scene takes as long.
const LONGEST_SCENE: Duration = Duration::from_secs(12);

/// Options of the demo.
#[derive(Debug, Args)]
pub(super) struct DemoArguments {
    /// Subject to show; without it, a model that fails.
    #[arg(value_enum, conflicts_with = "provider")]
    what: Option<Subject>,
    /// Make this provider fail instead, in its own way, over real sockets.
    #[arg(long, value_enum, conflicts_with = "print_config")]
    provider: Option<Provider>,
    /// Leave out the pauses for reading.
    #[arg(long)]
    fast: bool,
    /// Serve the console as well, and go on serving after the last scene, until Ctrl-C.
    #[arg(long, conflicts_with = "print_config")]
    console: bool,
    /// Print the configuration that the demo serves, and do nothing else.
    #[arg(long)]
    print_config: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// Subject of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// Tools that fail, over their own protocol.
    Tools,
}

/// A scene and its result.
struct SceneResult {
    scene: Scene,
    played: Played,
    /// Part that was not as promised.
    broken: Option<String>,
}

/// Shows all scenes.
pub(super) fn run(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    if arguments.what == Some(Subject::Tools) {
        return runtime()?.block_on(tools::show(arguments));
    }
    if arguments.print_config {
        print_line(CONFIG.trim_end())?;
        return Ok(ExitCode::SUCCESS);
    }
    runtime()?.block_on(show(arguments))
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
}

/// Returns a demo's configuration, checked like any other.
fn loaded(text: &str) -> anyhow::Result<Loaded> {
    config::load_text(text, None, &GivenEnvironment::new()).map_err(|faults| anyhow!("{faults}"))
}

async fn show(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let wires = match arguments.provider {
        Some(provider) => Some(Wires::start(provider).await?),
        None => None,
    };
    let mut loaded = loaded(
        &wires
            .as_ref()
            .map_or_else(|| CONFIG.to_owned(), Wires::config),
    )?;
    loaded.config.server.console = arguments.console;
    let listeners = Listeners::bind(&loaded.config).await?;
    let running = Running::start(
        &loaded,
        listeners,
        &ServerOptions {
            skip_pause: true,
            ..ServerOptions::default()
        },
    )
    .await?;
    let paint = match arguments.output {
        Output::Text => Some(Paint::on(&io::stdout())),
        Output::Json => None,
    };
    if let Some(paint) = paint {
        print_line(&paint.bold(&headline(arguments)))?;
        print_line(&paint.dim(&format!(
            "A real server on {}, called over gRPC; only the models are scripted. The timeline is what it sends \
             anybody who watches.",
            running.address
        )))?;
    }
    let console = running.console_url();
    if let Some(console) = &console {
        print_note(&format!("relight: the console is at {console}"));
    }
    let shown = play_all(arguments, wires.as_ref(), &running, paint).await;
    let concluded = shown.and_then(|shown| {
        match paint {
            Some(paint) => conclude(&shown, paint)?,
            None => print_line(&serde_json::to_string_pretty(&summary(&shown))?)?,
        }
        Ok(shown)
    });
    if let (Some(console), Ok(_)) = (&console, &concluded) {
        print_note(&format!(
            "relight: the console stays at {console} until Ctrl-C"
        ));
        tokio::signal::ctrl_c().await?;
    }
    running.shutdown().await;
    let shown = concluded?;
    let broken = shown
        .iter()
        .filter_map(|shown| Some((shown.scene, shown.broken.as_ref()?)));
    let broken: Vec<String> = broken
        .map(|(scene, reason)| format!("{}: {reason}", scene.title))
        .collect();
    for reason in &broken {
        print_note(&format!("relight: not as promised: {reason}"));
    }
    Ok(if broken.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn headline(arguments: &DemoArguments) -> String {
    match arguments.provider {
        None => "Relight demo: a model fails in five ways, and every call is answered.".to_owned(),
        Some(provider) => {
            format!(
                "Relight demo: {} fails in six ways and in its own words, over its own wire.",
                provider.name()
            )
        }
    }
}

async fn play_all(
    arguments: &DemoArguments,
    wires: Option<&Wires>,
    running: &Running,
    paint: Option<Paint>,
) -> anyhow::Result<Vec<SceneResult>> {
    let mut stage = Stage::open(running.address, paint).await?;
    let mut shown = Vec::new();
    let scenes = arguments
        .provider
        .map_or_else(|| SCENES.to_vec(), wire_scenes::scenes);
    for (number, scene) in (1..).zip(scenes) {
        if let Some(paint) = paint {
            print_line("")?;
            print_line(&paint.bold(&format!("{number}  {}", scene.title)))?;
            print_line(&paint.dim(&format!("   {}", scene.story)))?;
        }
        if !arguments.fast && paint.is_some() {
            tokio::time::sleep(PAUSE).await;
        }
        let played = tokio::time::timeout(LONGEST_SCENE, stage.play(&scene, wires)).await;
        let played = played
            .with_context(|| format!("{}: took longer than {LONGEST_SCENE:?}", scene.title))??;
        let broken = (scene.promise)(&played).err();
        if let Some(paint) = paint {
            for note in played.notes() {
                print_line(&format!(
                    "   {}  \"{note}\"",
                    paint.dim("the note that the model got")
                ))?;
            }
            for change in played.adaptations() {
                print_line(&format!(
                    "   {}  {change}",
                    paint.dim("what was changed in the request")
                ))?;
            }
            let verdict = match &broken {
                None => paint.green(&format!("✓ {}", scene.moral)),
                Some(reason) => paint.red(&format!("✗ not as promised: {reason}")),
            };
            print_line(&format!("   {verdict}"))?;
        }
        shown.push(SceneResult {
            scene,
            played,
            broken,
        });
    }
    Ok(shown)
}

fn conclude(shown: &[SceneResult], paint: Paint) -> io::Result<()> {
    print_line("")?;
    print_line(&paint.bold("What the callers got"))?;
    let mut table = Table::new(&["SCENE", "CALLS", "ATTEMPTS", "RECOVERED BY", "LAST REPLY"]);
    for SceneResult { scene, played, .. } in shown {
        table.row(vec![
            scene.name.to_owned(),
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
    let total = |count: fn(&Played) -> usize| {
        shown
            .iter()
            .map(|shown| count(&shown.played))
            .sum::<usize>()
    };
    let calls = total(|played| played.responses.len());
    print_line("")?;
    print_line(&format!(
        "   {calls} calls, {} attempts, {} calls recovered, {} failed; {} in all.",
        total(Played::attempts),
        total(Played::recovered),
        calls - total(Played::answered),
        span(shown.iter().map(|shown| shown.played.took_ms).sum()),
    ))?;
    print_line("")?;
    print_line(&paint.bold("Where to look next"))?;
    for (command, what) in [
        (
            "relight demo --print-config",
            "the configuration behind this, to start your own from",
        ),
        (
            "relight serve",
            "serve with the providers whose keys are in the environment",
        ),
        (
            "relight invoke \"Say hello\"",
            "call a model through it, and see retries as they happen",
        ),
        ("relight watch", "this timeline, live, for all callers"),
        ("relight circuits", "the circuits of all targets"),
        (
            "relight classify --status 429 \"…\"",
            "what Relight makes of a failure of yours",
        ),
    ] {
        print_line(&format!("   {command:<36}{}", paint.dim(what)))?;
    }
    Ok(())
}

fn summary(shown: &[SceneResult]) -> Value {
    let scenes: Vec<Value> = shown
        .iter()
        .map(
            |SceneResult {
                 scene,
                 played,
                 broken,
             }| {
                json!({
                    "scene": scene.name,
                    "as_promised": broken.is_none(),
                    "broken": broken,
                    "calls": played.responses.len(),
                    "attempts": played.attempts(),
                    "recovered": played.recovered(),
                    "recovered_by": played.recovered_by(),
                    "reply": played.last_reply(),
                    "took_ms": played.took_ms,
                })
            },
        )
        .collect();
    json!({ "scenes": scenes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_of_the_demo_has_no_faults_and_a_route_for_every_scene() {
        let loaded = loaded(CONFIG).unwrap();
        for scene in &SCENES {
            assert!(
                loaded
                    .config
                    .routes
                    .keys()
                    .any(|route| route.as_str() == scene.route),
                "{}",
                scene.route
            );
        }
    }
}
