//! The limits of a configuration, and the most memory that they allow.

use super::process::{KEY, Process, Serve, key};

const MIB: u64 = 1 << 20;

/// What a connection costs at most beside its requests: the windows and buffers of HTTP/2.
const CONNECTION: u64 = MIB;

/// Copies of a request, as it is counted with its head and entries: its body, its decoded form,
/// what the journal is given, and what providers are sent.
const REQUEST_COPIES: u64 = 6;

/// Copies of an answer: its body, its decoded form, what the journal is given, and what the caller
/// is sent.
const ANSWER_COPIES: u64 = 6;

/// What is kept counts as JSON; in memory it may take twice as much.
const KEPT: u64 = 2;

/// An event with its scope; the texts in it are bounded.
const EVENT: u64 = 4 << 10;

/// What the process takes without any attack, once all of its code has run: threads, the
/// allocator's arenas, metrics.
const BESIDE: u64 = 32 * MIB;

/// What a test configures, each as small as its attack allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// `server.limits.connections`, on each of the three ports.
    pub(crate) connections: u64,
    /// `server.limits.bytes_in_flight`, of a tenant and of a connection, too.
    pub(crate) in_flight_mib: u64,
    /// `server.limits.requests`, of a tenant, too, and `admission.max_in_flight`.
    pub(crate) requests: u64,
    /// `http.max_body_bytes` of the provider, at least 64.
    pub(crate) answer_kib: u64,
    /// `journal.max_bytes` of a journal in memory.
    pub(crate) journal_mib: u64,
    /// `events.capacity`.
    pub(crate) events: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 8,
            in_flight_mib: 4,
            requests: 8,
            answer_kib: 1024,
            journal_mib: 4,
            events: 256,
        }
    }
}

impl Limits {
    /// The most that callers and providers together can make the process hold; `SECURITY.md` has
    /// the same sum in words.
    pub(crate) fn memory(&self) -> u64 {
        3 * self.connections * CONNECTION
            + self.in_flight_mib * MIB * REQUEST_COPIES
            + self.requests * (self.answer_kib << 10) * ANSWER_COPIES
            + self.journal_mib * MIB * KEPT
            + self.events * EVENT
    }

    /// Starts the real program with these limits, a journal in memory, a provider at `base_url` and
    /// further settings.
    pub(crate) async fn serve(&self, base_url: &str, server: &str, rest: &str) -> Attacked {
        self.serve_over("memory", base_url, server, rest).await
    }

    /// The same with this journal.
    pub(crate) async fn serve_over(
        &self,
        store: &str,
        base_url: &str,
        server: &str,
        rest: &str,
    ) -> Attacked {
        let Self {
            connections,
            in_flight_mib,
            requests,
            answer_kib,
            journal_mib,
            events,
        } = self;
        let settings = format!(
            "  keys: [{}]
  limits:
    connections: {connections}
    requests: {requests}
    bytes_in_flight: {in_flight_mib}MiB
  timeouts: {{ body: 2s }}
{server}providers:
  p: {{ dialect: openai_chat, base_url: \"{base_url}\", api_key: k-provider, http: {{ max_body_bytes: {answer_kib}KiB }} }}
targets: {{ t: {{ provider: p, model: m }} }}
routes: {{ default: {{ targets: [t], deadline: 30s }} }}
admission: {{ max_in_flight: {requests} }}
journal: {{ store: \"{store}\", max_bytes: {journal_mib}MiB }}
events: {{ capacity: {events} }}
telemetry: {{ log: {{ level: error }} }}
{rest}",
            key("acme", KEY, "")
        );
        let server = Serve::with_front(&settings).start().await;
        let before = server.memory("VmHWM");
        Attacked {
            server,
            before,
            limits: *self,
        }
    }
}

/// A server under attack.
pub(crate) struct Attacked {
    pub(crate) server: Process,
    before: u64,
    limits: Limits,
}

impl Attacked {
    /// Fails when the process took more memory at any time than the sum of its limits.
    pub(crate) fn assert_bounded(&self, attack: &str) {
        let grown = self.server.memory("VmHWM").saturating_sub(self.before);
        let allowed = self.limits.memory() + BESIDE;
        assert!(
            grown < allowed,
            "{attack}: {} MiB more than at the start, {} allowed",
            grown >> 20,
            allowed >> 20
        );
    }
}
