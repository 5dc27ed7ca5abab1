//! The parts of the crate that its tests, benches and fuzz targets use directly.
//!
//! This is not a stable interface: programs use Relight by gRPC or HTTP. All else is private to
//! the crate, so that the compiler reports unused code.

pub mod config {
    pub use crate::config::{Config, GivenEnvironment, load, load_text, schema};
}
pub mod tool {
    pub use crate::{
        engine::tool_specs::configured,
        tool::{ListFreshness, ToolServerPlace, ToolServerSpec, ToolServers},
    };
}
pub mod domain {
    pub mod adaptation {
        pub use crate::domain::adaptation::DialectOverrides;
    }
    pub mod circuit {
        pub use crate::domain::circuit::GateKind;
    }
    pub mod clock {
        pub use crate::domain::clock::wall_now;
    }
    pub mod completion {
        pub use crate::domain::completion::{
            BlockKind, Break, Completion, Delta, Exactness, FinishReason, Usage,
        };
    }
    pub mod event {
        pub use crate::domain::event::EventBody;
    }
    pub mod failure {
        pub use crate::domain::failure::{
            Failure, FailureClass, ProviderError, Surface, TransportFault,
        };
    }
    pub mod fold {
        pub use crate::domain::fold::{AnswerState, StreamStep, hash_text};
    }
    pub mod ids {
        pub use crate::domain::ids::{
            Cursor, InvocationId, Operation, RequestId, RouteName, TargetId, TenantId, ThreadId,
        };
    }
    pub mod invocation {
        pub use crate::domain::invocation::{
            AttemptCause, AttemptRecord, Call, HistoryPatch, InjectionMode, Invocation, Outcome,
            Overrides, ToolInvocation, TraceContext,
        };
    }
    pub mod left_out {
        pub use crate::domain::left_out::{CallParameter, DIALECTS, Handling, ParameterRow, TABLE};
    }
    pub mod message {
        pub use crate::domain::message::{
            Media, MediaSource, Message, ModelCall, Opaque, Part, Reasoning, ResponseFormat, Role,
            ToolCall, ToolChoice, ToolDefinition, ToolResult,
        };
    }
    pub mod target {
        pub use crate::domain::target::{Capabilities, Dialect, Target};
    }
    pub mod tool {
        pub use crate::domain::tool::{ExecutedTool, ToolContent, ToolReply, ToolRequest};
    }
    pub mod units {
        pub use crate::domain::units::{
            format_bytes, format_duration, parse_bytes, parse_duration,
        };
    }
    pub mod upstream {
        pub use crate::domain::upstream::{BackgroundResponses, UpstreamHandle};
    }
    pub mod wire {
        pub use crate::domain::wire::{CompletionForm, DeltaStream, ProviderRequest, SentTo};
    }
}
pub mod engine {
    pub use crate::engine::{Arrival, Engine, InvocationRequest, Rejection};
}
pub mod events {
    pub use crate::events::{BusItem, EventBus};
}
pub mod execution {
    pub use crate::execution::{Executions, Settings};
}
pub mod front {
    pub use crate::{
        call_error::CallError,
        front::{Authenticate, Principal, is_request, router},
    };
}
pub mod grpc {
    pub use crate::grpc::v1;
    pub mod convert {
        pub use crate::grpc::convert::{facts, request};
    }
    pub mod auth {
        pub use crate::grpc::auth::Identity;
    }
    pub mod folder {
        pub use crate::grpc::folder::Folder;
    }
    pub mod peers {
        pub use crate::grpc::peers::{PEER_CLOCK_HEADER, PEER_HEADER, PeerKey};
    }
}
pub mod journal {
    pub use crate::journal::{
        AppendError, BeginResult, CancelWish, Compacted, Entry, ExecutionListing, ExecutionState,
        Fingerprint, Finish, FinishError, Held, Journal, JournalError, JournalMode, Limits,
        Listing, Locked, MemoryJournal, NewInvocation, Notices, Owner, PayloadCipher, Payloads,
        RecordedRequest, Renewed, RunState, Stats, THREAD_ERRORS_KEPT, Takeover, Thread,
        ThreadCommit, ThreadEnd, ThreadError, ThreadKey, goal_key,
    };
    pub mod postgres {
        pub use crate::journal::postgres::{open, open_shared};
    }
    pub mod sqlite {
        pub use crate::journal::sqlite::open;
    }
}
pub mod layers {
    pub use crate::layers::{BoxFuture, StepStream};
    pub mod invocation {
        pub use crate::layers::invocation::{InvocationContext, Plan};
    }
    pub mod spans {
        pub use crate::layers::spans::{EntryPoint, Spans};
    }
    pub mod targets {
        pub use crate::layers::targets::{SharedPolicies, TargetSpec, TargetState, Targets};
    }
}
pub mod policy {
    pub mod admission {
        pub use crate::policy::admission::{Admission, AdmissionPolicy};
    }
    pub mod circuit {
        pub use crate::policy::circuit::{
            Circuit, CircuitPolicy, CircuitState, FailKind, Forced, Peek, Permit, ReportContext,
            Signal,
        };
    }
    pub mod classify {
        pub use crate::policy::classify::Classifier;
    }
    pub mod concurrency {
        pub use crate::policy::concurrency::ConcurrencyPolicy;
    }
    pub mod rng {
        pub use crate::policy::rng::SeededRng;
    }
    pub mod gates {
        pub use crate::policy::gates::GatePolicy;
    }
    pub mod hedge {
        pub use crate::policy::hedge::HedgePolicy;
    }
    pub mod inject {
        pub use crate::policy::inject::{InjectionPolicy, Placement, inject, repair, validators};
    }
    pub mod retry {
        pub use crate::policy::retry::{Availability, Candidate, Cost, ParkPolicy, RetryPolicy};
    }
    pub mod retry_budget {
        pub use crate::policy::retry_budget::{BudgetPolicy, RetryBudget, Settled};
    }
    pub mod select {
        pub use crate::policy::select::{SelectPolicy, choose};
    }
    pub mod tenant_limits {
        pub use crate::policy::tenant_limits::TenantMeters;
    }
    pub mod timers {
        pub use crate::policy::timers::TimersPolicy;
    }
}
pub mod provider {
    pub use crate::provider::{BuildError, KeyHeader, ProviderSpec, Providers, StreamMode};
    pub mod known {
        pub use crate::provider::known::{ModelRef, capabilities};
    }
}
#[cfg(feature = "lab")]
pub mod scenarios {
    pub use crate::scenarios::{Report, Scenario, ScenarioOptions, all, markdown, random, run};
}
pub mod server {
    pub use crate::server::{Listeners, Running, ServerOptions};
}
pub mod stack {
    pub use crate::stack::{Shared, Stack, stack};
}
pub mod telemetry {
    pub use crate::{
        config::observe::{OtlpEndpoint, OtlpEndpoints, OtlpProtocol},
        telemetry::{Metrics, TargetNames, TelemetrySettings, build_tracer},
    };
}
#[cfg(feature = "lab")]
pub use relight_lab::prompt_cache;
#[cfg(feature = "lab")]
pub mod wire_server {
    pub use relight_lab::wire_server::{Reply, Request, WireServer};
    pub mod mcp {
        pub use relight_lab::wire_server::mcp::{Executed, McpScript, ScriptedTool};
    }
    pub mod answers {
        pub use relight_lab::wire_server::answers::of;
        pub mod anthropic {
            pub use relight_lab::wire_server::answers::anthropic::text;
        }
        pub mod bedrock {
            pub use relight_lab::wire_server::answers::bedrock::{event, frame, text};
        }
        pub mod gemini {
            pub use relight_lab::wire_server::answers::gemini::{broken_tool_call, text};
        }
        pub mod openai {
            pub use relight_lab::wire_server::answers::openai::{chunk, text, usage_chunk};
        }
        pub mod responses {
            pub use relight_lab::wire_server::answers::responses::{
                overloaded_amid, text, text_after,
            };
        }
    }
}
