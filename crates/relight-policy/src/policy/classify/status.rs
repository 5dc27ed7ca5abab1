//! The meaning of a bare status: every HTTP code from 400 to 599, every gRPC code, every fault of
//! this service's client.
//!
//! An undefined code stays unknown below 500 and is a server error from 500 on, as RFC 9110 §15
//! prescribes.

use super::{
    evidence::NumericEvidence,
    rule::{Rule, Yields},
};
use crate::domain::failure::{FailureClass as C, InvalidRequestDetail as D, TransportFault as F};

/// Meaning of a status: class, detail, and whether a retry helps if that differs from the class.
pub(super) type StatusVerdict = (C, Option<D>, Option<bool>);

/// Returns the meaning of a bare HTTP status; `None` for one without a specific meaning.
pub(super) const fn http(status: u16) -> Option<StatusVerdict> {
    Some(match status {
        400 | 406 | 411 | 412 | 416 | 417 | 428 | 431 | 463 | 494 => {
            (C::InvalidRequest, Some(D::Other), None)
        }
        415 | 501 => (C::InvalidRequest, Some(D::UnsupportedParameter), None),
        422 => (C::InvalidRequest, Some(D::BadSchema), None),
        // 419, 440: expired sessions; 495, 496: client certificates; 561: a balancer's sign-in.
        401 | 419 | 440 | 495 | 496 | 561 => (C::Authentication, None, None),
        // 456: a translator's characters; 509: a hosting plan's bandwidth.
        402 | 456 | 509 => (C::QuotaExceeded, None, None),
        403 | 450 | 451 => (C::PermissionDenied, None, None),
        404 | 405 | 410 => (C::NotFound, None, None),
        // A redirect to follow is a wrong base address; a proxy in between wants a password,
        // another protocol or TLS.
        300..=399 | 407 | 426 | 464 | 497 | 505 => (C::Configuration, None, None),
        408 | 504 | 522 | 524 | 598 | 599 => (C::Timeout, None, None),
        413 | 414 => (C::ContextLength, None, None),
        420 | 429 => (C::RateLimited, None, None),
        // 421: wrong connection; 444: closed unanswered; 523, 525, 527, 530: between the edge and
        // its origin.
        421 | 444 | 523 | 525 | 527 | 530 => (C::Network, None, None),
        // The origin's certificate, or a captive portal.
        511 | 526 => (C::Network, None, Some(false)),
        460 | 499 => (C::Cancelled, None, None),
        425 | 502 | 503 | 507 | 521 | 529 => (C::Overloaded, None, None),
        // A retry does not end a loop.
        506 | 508 | 510 => (C::ServerError, None, Some(false)),
        // 409: a conflicting write; 424: a failed dependency (the model container behind a managed
        // endpoint).
        409 | 424 | 500..=599 => (C::ServerError, None, None),
        _ => return None,
    })
}

/// Returns whether a status is more specific than the rule that held: a rule may yield to it, and
/// text about the connection or about time yields to a refusal that came over it.
pub(super) fn outweighs(rule: &Rule, evidence: &NumericEvidence) -> bool {
    let Some(status) = evidence.status() else {
        return false;
    };
    let stated = evidence.inner_status;
    match rule.yields_to_status {
        Some(Yields::Always) => true,
        Some(Yields::Telling) => {
            is_specific(status) && !is_finer(rule.class, status) || is_wrapper(rule.class, evidence)
        }
        Some(Yields::Stated) => stated.is_some_and(is_specific),
        None => {
            let refused = stated.is_some_and(|stated| matches!(stated, 401..=404 | 429));
            (rule.class == C::Network && refused)
                || (rule.class == C::Timeout && matches!(status, 401..=404))
        }
    }
}

/// Returns whether a server's failure is only the wrapper of a refused request that the text states.
fn is_wrapper(class: C, evidence: &NumericEvidence) -> bool {
    matches!(class, C::Overloaded | C::ServerError)
        && evidence.inner_status.is_some_and(blames_request)
        && evidence.outer_status.is_some_and(|outer| outer >= 500)
}

/// Returns whether a class is one of the several that a limit's status is given to.
const fn is_finer(class: C, status: u16) -> bool {
    matches!(
        (status, class),
        (429, C::RateLimited | C::QuotaExceeded | C::Overloaded)
    )
}

/// Returns whether a status is more specific than a type such as `invalid_request_error` or
/// `server_error`.
pub(super) const fn is_specific(status: u16) -> bool {
    !matches!(status, 0..=400 | 412 | 422 | 502)
        && !matches!(http(status), Some((C::ServerError, None, None)))
}

/// Returns whether a status says that the request is at fault.
pub(super) const fn blames_request(status: u16) -> bool {
    matches!(status, 400 | 404 | 405 | 413 | 415 | 422)
}

/// Returns the meaning of a bare gRPC code.
pub(super) const fn grpc(code: i32) -> Option<StatusVerdict> {
    Some(match code {
        1 => (C::Cancelled, None, None),
        3 | 9 | 11 => (C::InvalidRequest, Some(D::Other), None),
        4 => (C::Timeout, None, None),
        5 | 12 => (C::NotFound, None, None),
        7 => (C::PermissionDenied, None, None),
        8 => (C::RateLimited, None, None),
        // Without a text UNAVAILABLE comes from the server, with a transport text from the
        // connection.
        14 => (C::Overloaded, None, None),
        10 | 13 | 15 => (C::ServerError, None, None),
        16 => (C::Authentication, None, None),
        _ => return None,
    })
}

/// Returns the class of a typed fault of this service's own client, and whether a retry helps if
/// that differs from the class.
pub(super) const fn fault(fault: F) -> (C, Option<bool>) {
    match fault {
        F::Dns
        | F::Refused
        | F::Unreachable
        | F::Tls
        | F::Reset
        | F::ClosedEarly
        | F::LocalExhaustion => (C::Network, None),
        // A retry does not make a certificate trusted.
        F::Certificate => (C::Network, Some(false)),
        F::ConnectTimeout | F::FirstTokenTimeout | F::Deadline => (C::Timeout, None),
        F::IdleTimeout | F::Cut => (C::StreamInterrupted, None),
        F::TooLarge | F::Protocol => (C::MalformedResponse, None),
        F::ProcessExited => (C::Crash, None),
        F::NotStarted => (C::Configuration, None),
        F::NotReady => (C::ServerError, None),
        F::Cancelled => (C::Cancelled, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_500_and_above_has_a_verdict_and_an_undefined_one_below_stays_unknown() {
        for status in 500..600 {
            assert!(http(status).is_some(), "{status}");
        }
        for status in [418, 427, 430, 452, 470, 498] {
            assert_eq!(http(status), None, "{status}");
        }
        for status in (400..418).chain([421, 422, 424, 425, 426, 428, 429, 431, 451, 499]) {
            assert!(http(status).is_some(), "{status}");
        }
    }

    #[test]
    fn only_invalid_requests_carry_a_detail() {
        for status in 300..600 {
            if let Some((class, detail, _)) = http(status) {
                assert_eq!(class == C::InvalidRequest, detail.is_some(), "{status}");
            }
        }
    }
}
