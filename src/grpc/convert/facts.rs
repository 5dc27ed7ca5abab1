//! The raw facts of a failure that a caller wants classified.

use super::{
    enums::IntoDomain as _,
    invocation::{check_id, named},
    violation::{Path, Violations},
};
use crate::{
    domain::{
        failure::{ProviderError, Surface},
        ids::{MAX_ID_BYTES, Operation, RouteName},
        invocation::DEFAULT_OPERATION,
    },
    grpc::v1,
};

const MAX_HEADERS: usize = 100;
const MAX_TEXT_BYTES: usize = 1 << 20;
const MAX_OPERATION_BYTES: usize = 64;
/// One first attempt and as many after it as a policy may allow.
const MAX_ATTEMPT: u32 = 6;

/// A failure to classify, and the route whose policy plans its recovery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailureFacts {
    /// The facts.
    pub error: ProviderError,
    /// The route whose policy plans; `None` is the default one.
    pub route: Option<RouteName>,
    /// The operation whose policy plans.
    pub operation: Operation,
    /// Number of the attempt that failed. Range: 1 to 6.
    pub attempt: u32,
}

/// Returns the facts of a failure. If no surface is named, it is an HTTP response, raw or as a
/// client library words it.
///
/// # Errors
/// With every fault, by paths from the request's root.
pub fn failure_facts(wire: v1::ClassifyFailureRequest) -> Result<FailureFacts, Violations> {
    let mut faults = Violations::default();
    let at = Path::Root("");
    let nothing = |text: &Option<String>| text.as_deref().is_none_or(str::is_empty);
    if wire.status.is_none()
        && wire.headers.is_empty()
        && nothing(&wire.body)
        && nothing(&wire.message)
    {
        faults.add(
            at.field("status"),
            "is not set, nor is any of headers, body, message: there is nothing to judge",
        );
    }
    check_id(
        at.field("provider"),
        &wire.provider,
        MAX_ID_BYTES,
        &mut faults,
    );
    check_id(at.field("route"), &wire.route, MAX_ID_BYTES, &mut faults);
    check_id(
        at.field("operation"),
        &wire.operation,
        MAX_OPERATION_BYTES,
        &mut faults,
    );
    let surface = if let Ok(surface) = v1::FailureSurface::try_from(wire.surface) {
        surface.into_domain().unwrap_or_default()
    } else {
        faults.add(
            at.field("surface"),
            format!("{} is no surface", wire.surface),
        );
        Surface::default()
    };
    let (status, grpc_status) = status(wire.status, surface, &mut faults);
    if wire.headers.len() > MAX_HEADERS {
        let count = wire.headers.len();
        faults.add(
            at.field("headers"),
            format!("holds {count} headers; at most {MAX_HEADERS} are allowed"),
        );
    }
    for (index, header) in wire.headers.iter().enumerate() {
        if header.name.is_empty() {
            faults.add(at.field("headers").item(index).field("name"), "is empty");
        }
    }
    for (field, text) in [("body", &wire.body), ("message", &wire.message)] {
        if text
            .as_ref()
            .is_some_and(|text| text.len() > MAX_TEXT_BYTES)
        {
            faults.add(at.field(field), "is longer than 1 MiB");
        }
    }
    if wire.attempt > MAX_ATTEMPT {
        faults.add(
            at.field("attempt"),
            format!("is out of range: 1 to {MAX_ATTEMPT}"),
        );
    }
    let headers = wire
        .headers
        .into_iter()
        .map(|header| (header.name.to_ascii_lowercase(), header.value));
    let error = ProviderError {
        provider: wire.provider.to_ascii_lowercase().into(),
        surface,
        status,
        grpc_status,
        headers: headers.collect(),
        body: wire.body,
        message: wire.message,
        fault: None,
        returned: false,
        reply: None,
    };
    let operation = if wire.operation.is_empty() {
        DEFAULT_OPERATION.into()
    } else {
        wire.operation.into()
    };
    let route = named(wire.route).map(RouteName::from);
    faults.or(FailureFacts {
        error,
        route,
        operation,
        attempt: wire.attempt.max(1),
    })
}

/// Returns the status as HTTP's or as gRPC's, by the place where the failure showed.
fn status(
    wire: Option<u32>,
    surface: Surface,
    faults: &mut Violations,
) -> (Option<u16>, Option<i32>) {
    let Some(number) = wire else {
        return (None, None);
    };
    let at = Path::Root("status");
    match surface {
        Surface::Grpc => {
            if number > 16 {
                faults.add(at, "is no gRPC code: 0 to 16");
            }
            (None, i32::try_from(number).ok())
        }
        Surface::Http | Surface::Transport | Surface::Stream | Surface::Tool => {
            if !(100..=599).contains(&number) {
                faults.add(at, "is no HTTP status: 100 to 599");
            }
            (u16::try_from(number).ok(), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_reach_the_classifier_in_its_own_spelling() {
        let facts = failure_facts(v1::ClassifyFailureRequest {
            provider: "OpenAI".to_owned(),
            status: Some(429),
            headers: vec![v1::Header {
                name: "Retry-After".to_owned(),
                value: "7".to_owned(),
            }],
            ..v1::ClassifyFailureRequest::default()
        })
        .unwrap();
        assert_eq!(&*facts.error.provider, "openai");
        assert_eq!(
            (facts.error.surface, facts.error.status),
            (Surface::Http, Some(429))
        );
        assert_eq!(facts.error.header("retry-after"), Some("7"));
        assert_eq!(
            (facts.attempt, facts.operation.as_str(), facts.route),
            (1, "executor", None)
        );
    }

    #[test]
    fn a_status_is_grpc_s_where_the_failure_is() {
        let wire = |status| v1::ClassifyFailureRequest {
            surface: v1::FailureSurface::Grpc.into(),
            status: Some(status),
            ..v1::ClassifyFailureRequest::default()
        };
        let facts = failure_facts(wire(14)).unwrap();
        assert_eq!(
            (facts.error.status, facts.error.grpc_status),
            (None, Some(14))
        );
        assert_eq!(
            failure_facts(wire(17)).unwrap_err().kept()[0].reason,
            "is no gRPC code: 0 to 16"
        );
    }

    #[test]
    fn every_fault_of_the_facts_is_reported_at_once() {
        let faults = failure_facts(v1::ClassifyFailureRequest {
            surface: 9,
            status: Some(42),
            headers: vec![v1::Header::default()],
            body: Some("x".repeat(MAX_TEXT_BYTES + 1)),
            attempt: 7,
            ..v1::ClassifyFailureRequest::default()
        })
        .unwrap_err();
        let fields: Vec<&str> = faults
            .kept()
            .iter()
            .map(|fault| fault.field.as_str())
            .collect();
        assert_eq!(
            fields,
            ["surface", "status", "headers[0].name", "body", "attempt"]
        );
        let nothing = failure_facts(v1::ClassifyFailureRequest::default()).unwrap_err();
        assert_eq!(nothing.kept()[0].field, "status");
    }
}
