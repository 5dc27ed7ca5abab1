//! Reports each gRPC call to the metrics: its method, the status that it ended with, and how long
//! it took.

use std::{collections::HashSet, sync::Arc};

use axum::{
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
};
use prost_reflect::DescriptorPool;
use tokio::time::Instant;
use tonic::{Code, Status, service::Routes};

use super::{
    recorded_body::{NextFrame, RecordedCall, recorded_by},
    refused_callers::RefusedCallers,
};
use crate::{grpc::v1, telemetry::Metrics};

/// The method of calls that no service has: their names are the caller's, and must not become
/// labels.
const OTHER: &str = "_OTHER";

/// Methods that are served, by their full names, and the place where their calls are reported.
#[derive(Clone)]
struct RpcRecorder {
    metrics: Metrics,
    methods: Arc<HashSet<Arc<str>>>,
    refused: Arc<RefusedCallers>,
}

/// A call that has not ended.
struct RpcCall {
    metrics: Metrics,
    method: Arc<str>,
    began: Instant,
    /// If set, its end is reported.
    ended: bool,
}

/// Returns the same routes, with each call reported.
pub(super) fn recorded(routes: Routes, metrics: &Metrics, refused: Arc<RefusedCallers>) -> Routes {
    let methods = [v1::DESCRIPTORS, tonic_health::pb::FILE_DESCRIPTOR_SET]
        .into_iter()
        .flat_map(methods_of)
        .map(Arc::from)
        .collect();
    let recorder = RpcRecorder {
        metrics: metrics.clone(),
        methods: Arc::new(methods),
        refused,
    };
    Routes::from(
        routes
            .into_axum_router()
            .layer(middleware::from_fn_with_state(recorder, record)),
    )
}

fn methods_of(descriptors: &[u8]) -> Vec<String> {
    let pool = DescriptorPool::decode(descriptors).unwrap_or_default();
    let methods = pool.services().flat_map(|service| {
        let name = service.full_name().to_owned();
        service
            .methods()
            .map(move |method| format!("{name}/{}", method.name()))
            .collect::<Vec<_>>()
    });
    methods.collect()
}

async fn record(State(recorder): State<RpcRecorder>, request: Request, next: Next) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    let method = recorder.methods.get(path).cloned();
    let method = method.unwrap_or_else(|| Arc::from(OTHER));
    let refused = recorder.refused;
    let mut call = RpcCall {
        metrics: recorder.metrics,
        method,
        began: Instant::now(),
        ended: false,
    };
    let response = next.run(request).await;
    // A call without a message ends with its headers.
    if let Some(status) = Status::from_header_map(response.headers()) {
        if is_the_callers_fault(status.code()) {
            refused.note("grpc", name(status.code()), &response);
        }
        call.end(status.code());
        return response;
    }
    recorded_by(response, call)
}

// === impl RpcCall ===

impl RpcCall {
    fn end(&mut self, code: Code) {
        if !std::mem::replace(&mut self.ended, true) {
            let method = Arc::clone(&self.method);
            let took = self.began.elapsed();
            self.metrics.rpc_finished(method, name(code), took);
        }
    }
}

impl Drop for RpcCall {
    /// Without trailers the caller is gone.
    fn drop(&mut self) {
        self.end(Code::Cancelled);
    }
}

impl RecordedCall for RpcCall {
    fn see(&mut self, frame: &NextFrame) {
        match frame {
            Some(Ok(frame)) => {
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    self.end(status.code());
                }
            }
            Some(Err(_)) => self.end(Code::Internal),
            None => self.end(Code::Unknown),
        }
    }
}

/// Returns whether a status means that the request cannot be served as it is, whatever the state of
/// the models. What does not exist may be looked up.
const fn is_the_callers_fault(code: Code) -> bool {
    matches!(
        code,
        Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied
    )
}

/// Returns the code's name in the specification of gRPC.
const fn name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
