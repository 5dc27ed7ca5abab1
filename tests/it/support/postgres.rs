//! A real `PostgreSQL` for tests: the server that `RELIGHT_TEST_POSTGRES` names, else a private
//! one, else none.
//!
//! The private one is made of the installed binaries, listens on a free loopback port, keeps its
//! data in a temporary directory, and is shared by all tests of the process. A shell holds it and
//! ends with our end of its input, so that nothing is left behind, however the process ends.

#![expect(clippy::expect_used, reason = "a test ends where its world fails")]

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::http::free_address;

/// The environment variable with the URL of a server on which databases may be created.
const VARIABLE: &str = "RELIGHT_TEST_POSTGRES";

/// Starts the server, prints where its files are, and stops it when its input ends. Arguments: the
/// binaries' directory, the port.
const HOLD: &str = r#"
set -eu
bin=$1 port=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/relight-postgres.XXXXXX")
trap '"$bin/pg_ctl" -D "$dir/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"
"$bin/initdb" -D data -U relight -A trust -E UTF8 --no-locale -N >initdb.log 2>&1 || { cat initdb.log >&2; exit 1; }
options="-h 127.0.0.1 -p $port -k $dir -c fsync=off -c max_connections=300"
"$bin/pg_ctl" -D data -w -l server.log -o "$options" start >/dev/null </dev/null || { cat server.log >&2; exit 1; }
echo "$dir"
read -r _ || true
"#;

/// A database of its own, on the shared server.
#[derive(Clone)]
pub(crate) struct Database {
    admin: String,
    name: String,
}

/// The shared server; the child holds it while the process lives.
pub(crate) struct Server {
    pub(crate) url: String,
    /// Where its files are; `None` where the server is not this test's own.
    pub(crate) folder: Option<PathBuf>,
    _holder: Option<Child>,
}

// === impl Database ===

impl Database {
    /// A new, empty database; `None` where there is no server, which is printed once.
    pub(crate) async fn create() -> Option<Self> {
        static SERVER: OnceLock<Option<Server>> = OnceLock::new();
        let server = tokio::task::block_in_place(|| SERVER.get_or_init(Server::find)).as_ref()?;
        let name = format!("relight_{}", uuid::Uuid::now_v7().simple());
        let database = Self {
            admin: server.url.clone(),
            name,
        };
        database
            .administer(format!("CREATE DATABASE {}", database.name))
            .await;
        Some(database)
    }

    /// Where it is.
    pub(crate) fn url(&self) -> String {
        let (base, query) = self
            .admin
            .split_once('?')
            .map_or((self.admin.as_str(), ""), |(base, query)| (base, query));
        let server = base
            .rsplit_once('/')
            .expect("a URL of a server names a database")
            .0;
        format!("{server}/{}?{query}", self.name)
    }

    /// Breaks every connection to it, as a crash of the server's side would.
    pub(crate) async fn cut(&self) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ";
        self.administer(format!("{sql}'{}'", self.name)).await;
    }

    /// Refuses every connection from now on and breaks those that are there, as a stopped server
    /// would.
    pub(crate) async fn close(&self) {
        self.administer(format!(
            "ALTER DATABASE {} ALLOW_CONNECTIONS false",
            self.name
        ))
        .await;
        self.cut().await;
    }

    /// Accepts connections again.
    pub(crate) async fn open(&self) {
        self.administer(format!(
            "ALTER DATABASE {} ALLOW_CONNECTIONS true",
            self.name
        ))
        .await;
    }

    /// Drops it, even with open connections.
    pub(crate) async fn drop(self) {
        self.administer(format!("DROP DATABASE {} WITH (FORCE)", self.name))
            .await;
    }

    async fn administer(&self, sql: String) {
        let mut connection = PgConnection::connect(&self.admin)
            .await
            .expect("the test's server answers");
        sqlx::raw_sql(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .expect("an administrator's statement");
    }
}

// === impl Server ===

impl Server {
    #[expect(
        clippy::disallowed_methods,
        reason = "tests are configured by their environment alone"
    )]
    fn find() -> Option<Self> {
        if let Ok(url) = std::env::var(VARIABLE) {
            return Some(Self {
                url,
                folder: None,
                _holder: None,
            });
        }
        let Some(binaries) = binaries() else {
            // Not by the macro, whose words are shown for failed tests only.
            let reason = format!("no {VARIABLE}, and no server's binaries in /usr/lib/postgresql");
            writeln!(
                std::io::stderr(),
                "SKIPPED all tests on PostgreSQL: {reason}"
            )
            .expect("standard error");
            return None;
        };
        Some(Self::start(&binaries))
    }

    /// A server of its own for one test, which may do to it what it likes; `None` where there are
    /// no binaries.
    pub(crate) fn private() -> Option<Self> {
        binaries().as_ref().map(Self::start)
    }

    fn start(binaries: &PathBuf) -> Self {
        // Another process may take its port before it does.
        (0..3)
            .find_map(|_| Self::start_once(binaries))
            .expect("PostgreSQL starts; its own words are above")
    }

    fn start_once(binaries: &PathBuf) -> Option<Self> {
        let port = free_address().port();
        let mut command = as_server_user();
        command
            .args(["sh", "-c", HOLD, "sh"])
            .arg(binaries)
            .arg(port.to_string());
        let mut holder = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell that holds PostgreSQL");
        let mut said = String::new();
        let stdout = holder.stdout.take().expect("its output is piped");
        BufReader::new(stdout)
            .read_line(&mut said)
            .expect("its output can be read");
        if !said.starts_with('/') {
            holder.wait().expect("the shell ends with the server");
            return None;
        }
        Some(Self {
            url: format!("postgres://relight@127.0.0.1:{port}/postgres"),
            folder: Some(PathBuf::from(said.trim_end())),
            _holder: Some(holder),
        })
    }
}

/// The newest installed server's binaries.
pub(crate) fn binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut versions: Vec<PathBuf> = versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    versions.retain(|bin| bin.join("initdb").exists() && bin.join("pg_ctl").exists());
    versions.sort();
    versions.pop()
}

/// Runs the command as a user who may run the server, which root may not.
pub(crate) fn as_server_user() -> Command {
    let id = Command::new("id").arg("-u").output().expect("id runs");
    if id.stdout == b"0\n" {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid=postgres",
            "--regid=postgres",
            "--init-groups",
            "env",
        ]);
        command
    } else {
        Command::new("env")
    }
}
