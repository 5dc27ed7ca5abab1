//! Names of span attributes, metrics and log fields, in one place.
//!
//! Both the layers that open spans and the telemetry that counts need them, and neither imports the
//! other, so they are in the domain. The `gen_ai.*` names still change upstream: a rename is a
//! change to this file and to `docs/conventions.md`, which lists them, alone. `relight.*` names are
//! Relight's own and stable. Content (prompts, answers) has a name only if it may be captured.

/// The schema that the names follow.
pub const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.42.0";
/// The instrumentation scope of every span and metric.
pub const SCOPE: &str = "relight";

/// Attributes of OpenTelemetry's conventions.
pub mod attr {
    /// Class of what went wrong.
    pub const ERROR_TYPE: &str = "error.type";
    /// The model operation: `chat`.
    pub const GEN_AI_OPERATION: &str = "gen_ai.operation.name";
    /// The provider's family.
    pub const GEN_AI_PROVIDER: &str = "gen_ai.provider.name";
    /// The conversation.
    pub const GEN_AI_CONVERSATION: &str = "gen_ai.conversation.id";
    /// The requested model.
    pub const GEN_AI_REQUEST_MODEL: &str = "gen_ai.request.model";
    /// `true` if a stream is requested.
    pub const GEN_AI_REQUEST_STREAM: &str = "gen_ai.request.stream";
    /// Output limit in tokens.
    pub const GEN_AI_REQUEST_MAX_TOKENS: &str = "gen_ai.request.max_tokens";
    /// Temperature.
    pub const GEN_AI_REQUEST_TEMPERATURE: &str = "gen_ai.request.temperature";
    /// Nucleus sampling.
    pub const GEN_AI_REQUEST_TOP_P: &str = "gen_ai.request.top_p";
    /// The model that responded.
    pub const GEN_AI_RESPONSE_MODEL: &str = "gen_ai.response.model";
    /// The provider's id of the response.
    pub const GEN_AI_RESPONSE_ID: &str = "gen_ai.response.id";
    /// Reason why the model stopped.
    pub const GEN_AI_FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
    /// Seconds to the first piece of the completion.
    pub const GEN_AI_FIRST_CHUNK: &str = "gen_ai.response.time_to_first_chunk";
    /// Conversation as JSON, if content is captured.
    pub const GEN_AI_INPUT_MESSAGES: &str = "gen_ai.input.messages";
    /// Answer as JSON, if content is captured.
    pub const GEN_AI_OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
    /// Prompt tokens, cached ones included.
    pub const GEN_AI_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
    /// Answer tokens, reasoning included.
    pub const GEN_AI_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
    /// Prompt tokens read from the provider's cache.
    pub const GEN_AI_CACHE_READ_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
    /// Prompt tokens written to the provider's cache.
    pub const GEN_AI_CACHE_WRITE_TOKENS: &str = "gen_ai.usage.cache_write.input_tokens";
    /// Answer tokens spent on reasoning.
    pub const GEN_AI_REASONING_TOKENS: &str = "gen_ai.usage.reasoning.output_tokens";
    /// The tool that is called.
    pub const GEN_AI_TOOL_NAME: &str = "gen_ai.tool.name";
    /// The method of the Model Context Protocol.
    pub const MCP_METHOD: &str = "mcp.method.name";
    /// `input` or `output`.
    pub const GEN_AI_TOKEN_TYPE: &str = "gen_ai.token.type";
    /// HTTP method.
    pub const HTTP_METHOD: &str = "http.request.method";
    /// Sent attempts before this one.
    pub const HTTP_RESEND_COUNT: &str = "http.request.resend_count";
    /// HTTP status.
    pub const HTTP_STATUS: &str = "http.response.status_code";
    /// HTTP route of a server.
    pub const HTTP_ROUTE: &str = "http.route";
    /// `grpc`.
    pub const RPC_SYSTEM: &str = "rpc.system.name";
    /// Fully qualified method.
    pub const RPC_METHOD: &str = "rpc.method";
    /// The status by its name.
    pub const RPC_STATUS: &str = "rpc.response.status_code";
    /// Host of the provider.
    pub const SERVER_ADDRESS: &str = "server.address";
    /// Its port.
    pub const SERVER_PORT: &str = "server.port";
    /// The path of a server's request.
    pub const URL_PATH: &str = "url.path";
    /// The URL without secrets.
    pub const URL_FULL: &str = "url.full";
    /// The conversation, for UIs that group by it.
    pub const SESSION_ID: &str = "session.id";
    /// The span's kind for UIs of model calls.
    pub const OPENINFERENCE_KIND: &str = "openinference.span.kind";
}

/// Attributes of Relight's spans.
pub mod relight {
    /// The invocation's id.
    pub const INVOCATION: &str = "relight.invocation.id";
    /// Its route.
    pub const ROUTE: &str = "relight.route";
    /// Its operation.
    pub const OPERATION: &str = "relight.operation";
    /// Its tenant.
    pub const TENANT: &str = "relight.tenant";
    /// Prefix of the caller's labels.
    pub const LABEL_PREFIX: &str = "relight.label.";
    /// End of the invocation: `succeeded`, `recovered`, `failed`, `cancelled`.
    pub const OUTCOME: &str = "relight.outcome";
    /// All attempts.
    pub const ATTEMPTS: &str = "relight.attempt.count";
    /// Attempts again on the same target.
    pub const RETRIES: &str = "relight.retry.count";
    /// Attempts on another target.
    pub const FALLBACKS: &str = "relight.fallback.count";
    /// Attempts beside a slow one.
    pub const HEDGES: &str = "relight.hedge.count";
    /// Seconds waited between attempts.
    pub const BACKOFF_TOTAL: &str = "relight.backoff.total_s";
    /// 1 for the first.
    pub const ATTEMPT_NUMBER: &str = "relight.attempt.number";
    /// Reason why it was made.
    pub const ATTEMPT_CAUSE: &str = "relight.attempt.cause";
    /// `true` if its completion was kept.
    pub const ATTEMPT_WINNER: &str = "relight.attempt.winner";
    /// `true` if anything was sent.
    pub const ATTEMPT_SENT: &str = "relight.attempt.sent";
    /// The target.
    pub const TARGET: &str = "relight.target";
    /// Reason for this target.
    pub const TARGET_REASON: &str = "relight.target.reason";
    /// The target's circuit when it was chosen.
    pub const CIRCUIT: &str = "relight.circuit.state";
    /// Rest of the retry budget, in tokens.
    pub const BUDGET_LEFT: &str = "relight.retry_budget.left";
    /// `true` if a note about the failure was added for the model.
    pub const INJECTED: &str = "relight.injected";
    /// Place of the note.
    pub const INJECTED_VEHICLE: &str = "relight.injected.vehicle";
    /// Change of the request that makes the target take it.
    pub const ADAPTATION: &str = "relight.adaptation";
    /// Span event: the connection to a response broke and the response is resumed.
    pub const READ_ON: &str = "relight.read_on";
    /// A short description of the interruption.
    pub const READ_ON_REASON: &str = "relight.read_on.reason";
    /// Class of the failure.
    pub const CLASS: &str = "relight.error.class";
    /// `true` if the same request may succeed later.
    pub const RETRYABLE: &str = "relight.error.retryable";
    /// The classifier's rule that decided.
    pub const RULE: &str = "relight.error.rule";
    /// The fact that the rule keyed on, redacted and bounded.
    pub const FACT: &str = "relight.error.fact";
    /// Planned length of the wait, in seconds.
    pub const BACKOFF_SECONDS: &str = "relight.backoff.duration_s";
    /// Source of the length of the wait.
    pub const BACKOFF_SOURCE: &str = "relight.backoff.source";
}

/// Names of metrics.
pub mod metric {
    /// Seconds of a gRPC call, as its caller sees it.
    pub const RPC_DURATION: &str = "rpc.server.call.duration";
    /// Seconds of a request of the HTTP front, as its caller sees it.
    pub const HTTP_DURATION: &str = "http.server.request.duration";
    /// Seconds of one attempt.
    pub const GEN_AI_DURATION: &str = "gen_ai.client.operation.duration";
    /// Seconds to the first piece of a completion.
    pub const GEN_AI_FIRST_CHUNK: &str = "gen_ai.client.operation.time_to_first_chunk";
    /// Tokens of one attempt.
    pub const GEN_AI_TOKENS: &str = "gen_ai.client.token.usage";
    /// Invocations that ended.
    pub const INVOCATIONS: &str = "relight.invocations";
    /// The same by tenant.
    pub const TENANT_INVOCATIONS: &str = "relight.tenant.invocations";
    /// Tokens of all attempts of a tenant's invocations.
    pub const TENANT_TOKENS: &str = "relight.tenant.tokens.spent";
    /// Calls refused because their tenant is over a limit.
    pub const TENANT_LIMITED: &str = "relight.tenant.limited";
    /// Their seconds.
    pub const INVOCATION_DURATION: &str = "relight.invocation.duration";
    /// Their attempts.
    pub const INVOCATION_ATTEMPTS: &str = "relight.invocation.attempts";
    /// Attempts that ended.
    pub const ATTEMPTS: &str = "relight.attempts";
    /// Recoveries that were decided.
    pub const RECOVERIES: &str = "relight.recoveries";
    /// Recoveries that led to a completion.
    pub const RECOVERIES_SUCCEEDED: &str = "relight.recoveries.succeeded";
    /// Seconds of planned waits.
    pub const RETRY_DELAY: &str = "relight.retry.delay";
    /// Hedges started.
    pub const HEDGES: &str = "relight.hedges";
    /// Fallbacks chosen.
    pub const FALLBACKS: &str = "relight.fallbacks";
    /// Notes put into prompts, or left out.
    pub const INJECTIONS: &str = "relight.injections";
    /// Tokens paid for.
    pub const TOKENS_SPENT: &str = "relight.tokens.spent";
    /// Tokens of the completions that were kept; the difference is the price of recovery.
    pub const TOKENS_DELIVERED: &str = "relight.tokens.delivered";
    /// Tokens of prompts that a prompt cache held, and that were written to one.
    pub const TOKENS_CACHED: &str = "relight.tokens.cached";
    /// The money for all attempts.
    pub const COST_SPENT: &str = "relight.cost.spent";
    /// Money for the completions that were kept.
    pub const COST_DELIVERED: &str = "relight.cost.delivered";
    /// 1 for the state that a circuit is in, 0 for the others.
    pub const CIRCUIT_STATE: &str = "relight.circuit.state";
    /// Moves of circuits.
    pub const CIRCUIT_TRANSITIONS: &str = "relight.circuit.transitions";
    /// 1 while a gate is closed.
    pub const GATE_CLOSED: &str = "relight.gate.closed";
    /// Tokens left in a retry budget.
    pub const BUDGET_LEVEL: &str = "relight.retry_budget.level";
    /// Times that a retry budget was found empty.
    pub const BUDGET_EXHAUSTED: &str = "relight.retry_budget.exhausted";
    /// Invocations in flight.
    pub const INFLIGHT: &str = "relight.inflight";
    /// Invocations that wait for a circuit or gate.
    pub const PARKED: &str = "relight.parked";
    /// Invocations refused because of too much work.
    pub const SHED: &str = "relight.shed";
    /// Open watch streams.
    pub const WATCHERS: &str = "relight.watchers";
    /// Events that a reader did not get.
    pub const EVENTS_MISSED: &str = "relight.events.missed";
    /// Failures that no rule could judge.
    pub const CLASSIFIER_UNKNOWN: &str = "relight.classifier.unknown";
    /// Configurations loaded or refused.
    pub const CONFIG_RELOADS: &str = "relight.config.reloads";
    /// Releases rolled back.
    pub const RELEASE_DECISIONS: &str = "relight.release.decisions";
    /// 1 while a store can be reached.
    pub const STORE_UP: &str = "relight.store.up";
    /// Live replicas of the fleet.
    pub const FLEET_REPLICAS: &str = "relight.fleet.replicas";
    /// 1 while another replica responds to this one.
    pub const FLEET_PEER_UP: &str = "relight.fleet.peer.up";
    /// 1 while a tool server lists its tools.
    pub const TOOL_SERVER_UP: &str = "relight.tool_server.up";
    /// Seconds of a journal operation.
    pub const JOURNAL_DURATION: &str = "relight.journal.duration";
    /// Steps that wait to be recorded.
    pub const JOURNAL_WAITING: &str = "relight.journal.waiting";
    /// Steps that were delivered but not recorded.
    pub const JOURNAL_DROPPED: &str = "relight.journal.dropped";
    /// Invocations that ran without a record because the journal was unavailable.
    pub const JOURNAL_UNRECORDED: &str = "relight.journal.unrecorded";
    /// Invocations that the journal keeps.
    pub const JOURNAL_INVOCATIONS: &str = "relight.journal.invocations";
    /// Steps that the journal keeps.
    pub const JOURNAL_STEPS: &str = "relight.journal.steps";
    /// Bytes that the journal keeps.
    pub const JOURNAL_SIZE: &str = "relight.journal.bytes";
    /// Threads that the journal keeps.
    pub const JOURNAL_THREADS: &str = "relight.journal.threads";
    /// Records that the journal's retention removed: steps of invocations, invocations, threads.
    pub const JOURNAL_REMOVED: &str = "relight.journal.removed";
    /// 1 while the process drains.
    pub const DRAINING: &str = "relight.draining";
    /// Always 1; its labels identify the build.
    pub const BUILD_INFO: &str = "relight.build.info";
}

/// Labels of Relight's metrics.
pub mod label {
    /// The version of Relight.
    pub const VERSION: &str = "version";
    /// The commit that was built, and its day.
    pub const COMMIT: &str = "commit";
    /// The currency, three letters.
    pub const CURRENCY: &str = "currency";
    /// The route.
    pub const ROUTE: &str = "route";
    /// The operation.
    pub const OPERATION: &str = "operation";
    /// The tenant.
    pub const TENANT: &str = "tenant";
    /// A limit of a tenant, as its setting is called.
    pub const LIMIT: &str = "limit";
    /// End of an invocation or attempt.
    pub const OUTCOME: &str = "outcome";
    /// The target.
    pub const TARGET: &str = "target";
    /// The provider's family.
    pub const PROVIDER: &str = "provider";
    /// The model.
    pub const MODEL: &str = "model";
    /// Reason why an attempt was made.
    pub const CAUSE: &str = "cause";
    /// Class of a failure; empty if nothing failed.
    pub const CLASS: &str = "class";
    /// Step taken to recover.
    pub const STRATEGY: &str = "strategy";
    /// Source of the length of the wait.
    pub const SOURCE: &str = "source";
    /// Decision about a release.
    pub const ACTION: &str = "action";
    /// The rule by which it was decided.
    pub const LANE: &str = "lane";
    /// The target that was left.
    pub const FROM: &str = "from";
    /// The target that was taken, or the state that was reached.
    pub const TO: &str = "to";
    /// Place of the note, or `skipped`.
    pub const VEHICLE: &str = "vehicle";
    /// `input` or `output`.
    pub const TOKEN_TYPE: &str = "type";
    /// A circuit's state.
    pub const STATE: &str = "state";
    /// Gate.
    pub const GATE: &str = "gate";
    /// The key of a pool, by its label.
    pub const KEY: &str = "key";
    /// Reader.
    pub const READER: &str = "reader";
    /// `accepted` or `rejected`.
    pub const RESULT: &str = "result";
    /// Store.
    pub const STORE: &str = "store";
    /// Another replica of the fleet.
    pub const REPLICA: &str = "replica";
    /// Tool server.
    pub const SERVER: &str = "server";
    /// Removed records: `steps` or `invocation`.
    pub const WHAT: &str = "what";
}
