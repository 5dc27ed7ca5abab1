//! `relight serve`: runs the server in this process until a signal ends it.
//!
//! The first signal starts an orderly shutdown, the second ends the process at once.

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use crate::{
    config::{
        Environment, GivenAddresses, Loaded, ProcessEnvironment, ServerConfig,
        observe::LogFormat,
        server::{AuthMode, listen_address},
    },
    domain::clock::wall_now,
    server::{Listeners, Running, ServerOptions},
    tool::child_guard::guard_children,
};
use anyhow::bail;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{
    config::{load, print_faults},
    terminal::print_note,
};

const EXAMPLES: &str = "\
Examples:
  relight serve                                        with keys found in the environment, or a scripted model
  relight serve --config relight.yaml                  as configured; follows the file and SIGHUP
  relight serve --listen 0.0.0.0:50051 --config …      for other hosts; needs keys, or `server.auth: none`";

/// Path at which images and packages have their configuration.
const USUAL_FILE: &str = "/etc/relight/relight.yaml";

/// Time for which threads that block may keep the process after its end.
const LEAVE_BOUND: Duration = Duration::from_secs(1);

/// The configuration and addresses to serve.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ServeArguments {
    /// Configuration; without it /etc/relight/relight.yaml if that exists, else the settings that
    /// work with the keys in the environment.
    #[arg(long, short, value_name = "FILE", env = "RELIGHT_CONFIG")]
    config: Option<PathBuf>,
    /// Address at which gRPC is served, in place of `server.listen`; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    listen: Option<SocketAddr>,
    /// Address at which health and metrics are served, in place of `server.admin_listen`; port 0
    /// takes a free one.
    #[arg(long, value_name = "ADDRESS", value_parser = listen_address)]
    admin_listen: Option<SocketAddr>,
}

/// The signals that end the server.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

/// Serves until a signal ends it.
pub(super) fn run(arguments: &ServeArguments) -> anyhow::Result<ExitCode> {
    let usual = Some(Path::new(USUAL_FILE)).filter(|file| file.exists());
    let loaded = match load(arguments.config.as_deref().or(usual)) {
        Ok(loaded) => loaded,
        Err(faults) => return Ok(print_faults(&faults)),
    };
    let given = GivenAddresses {
        listen: arguments.listen,
        admin_listen: arguments.admin_listen,
    };
    let loaded = loaded.listening_at(given);
    still_guarded(&loaded.config.server)?;
    guard_children();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let code = runtime.block_on(serve(loaded));
    // A thread that still blocks somewhere must not keep the process.
    runtime.shutdown_timeout(LEAVE_BOUND);
    code
}

async fn serve(loaded: Loaded) -> anyhow::Result<ExitCode> {
    // Before anything listens, so that no signal is lost.
    let mut stop = Stop {
        terminate: signal(SignalKind::terminate())?,
        interrupt: signal(SignalKind::interrupt())?,
    };
    let listeners = Listeners::bind(&loaded.config).await?;
    let embedded_journal = embedded_journal(loaded.config.server.listen, &ProcessEnvironment);
    let options = ServerOptions {
        logs: true,
        embedded_journal,
        ..ServerOptions::default()
    };
    let running = Running::start(&loaded, listeners, &options).await?;
    loaded.warn();
    log_listening(&loaded, &running);
    stop.signal().await;
    let give_up = running.give_up();
    let ordered = running.shutdown();
    tokio::select! {
        () = ordered => Ok(ExitCode::SUCCESS),
        signal = stop.signal() => {
            give_up.await;
            Ok(ExitCode::from(128 + signal))
        }
    }
}

/// Returns the journal's file if the configuration names none: one for each port, so that two
/// servers of one user do not meet in it. A port that is free by chance is another one the next
/// time, so that it has none.
fn embedded_journal(listen: SocketAddr, environment: &impl Environment) -> Option<PathBuf> {
    use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
    let set = |name: &str| {
        environment
            .var(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    let port = Some(listen.port()).filter(|port| *port != 0)?;
    let folder = state.join("relight");
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&folder)
        .ok()?;
    let file = folder.join(format!("journal-{port}.db"));
    // It holds questions and completions: readable by its user alone.
    let opened = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&file);
    opened.is_ok().then_some(file)
}

/// The configuration was checked with its own addresses; one that is given here must not open what
/// it kept shut.
fn still_guarded(server: &ServerConfig) -> anyhow::Result<()> {
    let unguarded = server.auth.is_none() && server.auth_mode() == AuthMode::None;
    if unguarded && !server.listen.ip().is_loopback() {
        bail!(
            "--listen {}: others could reach it and callers are not authenticated; configure server.keys or \
             server.tls.client_ca_file, or write server.auth: none",
            server.listen
        );
    }
    Ok(())
}

/// One line with its address, in the form of the log that follows.
fn log_listening(loaded: &Loaded, running: &Running) {
    let config = &loaded.config;
    let people = match config.telemetry.log.format {
        LogFormat::Text => true,
        LogFormat::Json => false,
        LogFormat::Auto => io::stderr().is_terminal(),
    };
    let source = loaded.file.as_deref().map(Path::display);
    if people {
        let from = match source {
            Some(file) => format!("configured by {file}"),
            None if loaded.found.is_empty() => {
                "a scripted model answers, since no provider's key was found".to_owned()
            }
            None => format!("providers found by {}", loaded.found.join(", ")),
        };
        let front = running
            .openai_front_address
            .map(|front| format!(", the OpenAI-compatible front on {front}"));
        let console = running
            .console_url()
            .map(|url| format!(", the console on {url}"));
        let mcp = running
            .mcp_front_address
            .map(|front| format!(", tools as an MCP server on http://{front}"));
        print_note(&format!(
            "relight {} serves gRPC on {}{}{}{}, health and metrics on http://{}; {from}",
            env!("CARGO_PKG_VERSION"),
            running.address,
            front.unwrap_or_default(),
            console.unwrap_or_default(),
            mcp.unwrap_or_default(),
            running.admin_address,
        ));
    } else {
        let line = serde_json::json!({
            "time": wall_now().to_string(),
            "severity": "info",
            "event": "listening",
            "message": format!("serves gRPC on {}, health and metrics on {}", running.address, running.admin_address),
            "version": env!("CARGO_PKG_VERSION"),
            "address": running.address.to_string(),
            "admin_address": running.admin_address.to_string(),
            "openai_front_address": running.openai_front_address.map(|front| front.to_string()),
            "console": running.console_url(),
            "admin_service_address": running.admin_service_address.map(|admin| admin.to_string()),
            "mcp_front_address": running.mcp_front_address.map(|front| front.to_string()),
            "config": source.map(|file| file.to_string()),
            "found": loaded.found,
        });
        print_note(&line.to_string());
    }
}

// === impl Stop ===

impl Stop {
    /// Waits for a signal and returns its number.
    async fn signal(&mut self) -> u8 {
        tokio::select! {
            _ = self.terminate.recv() => 15,
            _ = self.interrupt.recv() => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::GivenEnvironment;

    use super::*;

    #[test]
    fn a_journal_by_default_is_a_private_file_of_its_user_and_port() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().display().to_string();
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let home_is = |home: &str| GivenEnvironment::from([("HOME".to_owned(), home.to_owned())]);
        let environment = home_is(&home);
        let file = embedded_journal(at(50051), &environment).unwrap();
        assert_eq!(
            file,
            folder.path().join(".local/state/relight/journal-50051.db")
        );
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(
            embedded_journal(at(0), &environment),
            None,
            "another port each time"
        );
        assert_eq!(
            embedded_journal(at(50051), &GivenEnvironment::new()),
            None,
            "no place"
        );
        assert_eq!(
            embedded_journal(at(50051), &home_is("/dev/null")),
            None,
            "no place that can be written"
        );
    }

    #[test]
    fn an_address_given_on_the_command_line_opens_nothing_that_is_not_guarded() {
        let open = SocketAddr::from(([0, 0, 0, 0], 50051));
        let mut server = ServerConfig {
            listen: open,
            ..ServerConfig::default()
        };
        assert!(still_guarded(&server).is_err());
        server.auth = Some(AuthMode::None);
        assert!(
            still_guarded(&server).is_ok(),
            "the lack of authentication is explicit"
        );
        assert!(still_guarded(&ServerConfig::default()).is_ok(), "loopback");
    }
}
