//! The server in a process of its own, which counts what it allocates.

use std::{
    alloc::System,
    io::{BufRead as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use relight::internals::{
    config::{GivenEnvironment, load_text},
    server::{Listeners, Running, ServerOptions},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    sync::Mutex,
    time::{sleep, timeout},
};

use super::{callgrind, calls::Interfaces};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PATIENCE: Duration = Duration::from_mins(2);
const CONFIGURATION: &str = "RELIGHT_COST_CONFIGURATION";

/// System calls whose number depends on who happens to sleep when.
const OF_CHANCE: &[&str] = &[
    "futex",
    "epoll_wait",
    "epoll_pwait",
    "sched_yield",
    "restart_syscall",
];

/// A server that counts; it ends when it is dropped.
pub(crate) struct Server {
    child: Child,
    talk: Mutex<(ChildStdin, tokio::io::Lines<BufReader<ChildStdout>>)>,
    pub(crate) interfaces: Interfaces,
    _folder: tempfile::TempDir,
}

/// A count of the system calls of a server.
pub(crate) struct Trace {
    child: Child,
    report: BufReader<ChildStderr>,
}

/// Not a test: the process that `Server::start` starts. It says where it listens, then, for every
/// line it is sent, how often it allocated and how many bytes.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "its configuration comes by the environment of its process"
)]
#[ignore = "it is started by the test that counts"]
fn serve() {
    let Ok(yaml) = std::env::var(CONFIGURATION) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let running = runtime.block_on(async {
        let loaded = load_text(&yaml, None, &GivenEnvironment::new()).unwrap();
        let listeners = Listeners::bind(&loaded.config).await.unwrap();
        Running::start(
            &loaded,
            listeners,
            &ServerOptions {
                skip_pause: true,
                ..ServerOptions::default()
            },
        )
        .await
        .unwrap()
    });
    println!(
        "\n@ {} {}",
        running.address,
        running.openai_front_address.unwrap()
    );
    for line in std::io::stdin().lock().lines() {
        line.unwrap();
        let stats = ALLOCATOR.stats();
        println!(
            "\n@ {} {}",
            stats.allocations + stats.reallocations,
            stats.bytes_allocated
        );
        std::io::stdout().flush().unwrap();
    }
}

impl Server {
    /// Starts one whose model is at `upstream`; `{}` in `store` stands for a folder of its own.
    pub(crate) async fn start(upstream: SocketAddr, store: &str) -> Self {
        Self::run(Command::new(program()), upstream, store).await
    }

    /// The same, run by a command that counts its instructions into `file`.
    pub(crate) async fn start_counted(upstream: SocketAddr, store: &str, file: &Path) -> Self {
        let mut command = callgrind::command(file, &program());
        command.stderr(Stdio::null());
        Self::run(command, upstream, store).await
    }

    async fn run(mut command: Command, upstream: SocketAddr, store: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = store.replace("{}", &folder.path().display().to_string());
        let yaml = format!(
            "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\", openai_front: {{ listen: \"127.0.0.1:0\" }} }}\n\
             providers: {{ p: {{ dialect: openai_chat, base_url: \"http://{upstream}/v1\", api_key: k }} }}\n\
             targets: {{ main: {{ provider: p, model: m-1 }} }}\n\
             routes: {{ default: {{ targets: [main] }} }}\n\
             journal: {{ store: \"{store}\" }}\n"
        );
        let mut child = command
            .args(["--ignored", "--exact", "--nocapture", "server::serve"])
            .env(CONFIGURATION, yaml)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut talk = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()).lines(),
        );
        let words = said(&mut talk.1).await;
        let interfaces = Interfaces::new(words[1].parse().unwrap(), words[0].parse().unwrap());
        Self {
            child,
            talk: Mutex::new(talk),
            interfaces,
            _folder: folder,
        }
    }

    /// How often it allocated since its start, and how many bytes.
    pub(crate) async fn allocated(&self) -> (u64, u64) {
        // What is done late, such as records, belongs to the calls before.
        sleep(Duration::from_millis(300)).await;
        let mut talk = self.talk.lock().await;
        talk.0.write_all(b"\n").await.unwrap();
        let words = said(&mut talk.1).await;
        (words[0].parse().unwrap(), words[1].parse().unwrap())
    }

    /// Counts instructions from now on, or no longer.
    pub(crate) async fn count_instructions(&self, on: bool) {
        callgrind::count(self.child.id().unwrap(), on).await;
    }

    /// Ends it.
    pub(crate) async fn end(self) {
        let Self {
            mut child, talk, ..
        } = self;
        // Its harness still writes to its output.
        let (input, _output) = talk.into_inner();
        drop(input);
        let ended = timeout(PATIENCE, child.wait()).await.unwrap().unwrap();
        assert!(ended.success(), "{ended}");
    }

    /// Counts system calls from now on; `None` where there is nothing to count them with.
    pub(crate) async fn trace(&self) -> Option<Trace> {
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-c",
            "-U",
            "calls,name",
            "-p",
            &self.child.id()?.to_string(),
        ]);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .ok()?;
        let mut report = BufReader::new(child.stderr.take()?);
        let mut attached = String::new();
        timeout(PATIENCE, report.read_line(&mut attached))
            .await
            .unwrap()
            .unwrap();
        // It is not allowed everywhere.
        attached
            .contains(" attached")
            .then_some(Trace { child, report })
    }
}

impl Trace {
    /// Ends the count.
    pub(crate) async fn finish(mut self) -> u64 {
        sleep(Duration::from_millis(300)).await;
        let interrupt = format!("kill -INT {}", self.child.id().unwrap());
        assert!(
            Command::new("sh")
                .args(["-c", &interrupt])
                .status()
                .await
                .unwrap()
                .success()
        );
        let mut report = String::new();
        timeout(PATIENCE, self.report.read_to_string(&mut report))
            .await
            .unwrap()
            .unwrap();
        let counted = report.lines().filter_map(|line| {
            let (calls, name) = line.trim().split_once(' ')?;
            let counts = !OF_CHANCE.contains(&name.trim()) && name.trim() != "total";
            calls.parse::<u64>().ok().filter(|_| counts)
        });
        counted.sum()
    }
}

fn program() -> PathBuf {
    std::env::current_exe().unwrap()
}

async fn said(lines: &mut tokio::io::Lines<BufReader<ChildStdout>>) -> Vec<String> {
    let reading = async {
        loop {
            let line = lines.next_line().await.unwrap().unwrap();
            if let Some(words) = line.strip_prefix("@ ") {
                return words.split(' ').map(str::to_owned).collect();
            }
        }
    };
    timeout(PATIENCE, reading).await.unwrap()
}
