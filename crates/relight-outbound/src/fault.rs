//! Maps a transport error to a fault by the types in its chain of sources, not by their texts.
//!
//! A fault of the connecting phase maps to one for which `never_sent` is true; a later one does
//! not, because a request that may have reached the provider must not count as unsent.

use std::{error::Error, io, sync::Arc};

use rustls::AlertDescription;

use super::{dial::DialError, names::NameError, proxy::ProxyError};
use crate::domain::failure::{ProviderError, Surface, TransportFault};

/// Longest message, in bytes.
const MAX_MESSAGE_BYTES: usize = 300;

/// `ENFILE`, `EMFILE` and `ENOBUFS` have no kind of their own in std; these are their numbers on
/// Linux.
const EXHAUSTED_OS_ERRORS: [i32; 3] = [23, 24, 105];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExchangePhase {
    Dial,
    Head,
    Body,
}

/// Returns the facts of a request without a response head.
pub fn head_fault(provider: &Arc<str>, error: &hyper_util::client::legacy::Error) -> ProviderError {
    let phase = if error.is_connect() {
        ExchangePhase::Dial
    } else {
        ExchangePhase::Head
    };
    // The outermost error only names the phase in which it failed.
    let cause: &(dyn Error + 'static) = error.source().unwrap_or(error);
    let fault = fault_of(cause, phase);
    ProviderError::transport(Arc::clone(provider), fault, words_of(fault, cause))
}

/// Returns the facts of a response that was cut.
pub(super) fn body_fault(provider: &Arc<str>, error: &hyper::Error) -> ProviderError {
    let fault = fault_of(error, ExchangePhase::Body);
    let words = words_of(fault, error);
    ProviderError {
        surface: Surface::Stream,
        ..ProviderError::transport(Arc::clone(provider), fault, words)
    }
}

fn fault_of(error: &(dyn Error + 'static), phase: ExchangePhase) -> TransportFault {
    let mut named = None;
    let mut next = Some(error);
    while let Some(current) = next {
        // The deepest cause that has a name is the most exact one.
        named = named_by_type(current, phase).or(named);
        next = inner(current);
    }
    named.unwrap_or(match phase {
        ExchangePhase::Dial => TransportFault::Unreachable,
        ExchangePhase::Head => TransportFault::ClosedEarly,
        ExchangePhase::Body => TransportFault::Cut,
    })
}

/// Returns the cause within; `io::Error` hides a wrapped error from `source`, which only gives that
/// error's own source.
fn inner<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    if let Some(io) = error.downcast_ref::<io::Error>() {
        return io
            .get_ref()
            .map(|wrapped| wrapped as &(dyn Error + 'static));
    }
    if let Some(h2) = error.downcast_ref::<h2::Error>() {
        return h2.get_io().map(|io| io as &(dyn Error + 'static));
    }
    error.source()
}

fn named_by_type(error: &(dyn Error + 'static), phase: ExchangePhase) -> Option<TransportFault> {
    if let Some(dial) = error.downcast_ref::<DialError>() {
        return match dial {
            DialError::Timeout(_) => Some(TransportFault::ConnectTimeout),
            DialError::Failed(_) => None,
        };
    }
    if error.is::<NameError>() {
        return Some(TransportFault::Dns);
    }
    if let Some(tls) = error.downcast_ref::<rustls::Error>() {
        return Some(tls_fault(tls, phase));
    }
    if let Some(io) = error.downcast_ref::<io::Error>() {
        return io_fault(io, phase);
    }
    if let Some(h2) = error.downcast_ref::<h2::Error>() {
        let broken = h2.is_reset() || h2.is_go_away();
        return (!h2.is_io()).then_some(if broken {
            TransportFault::Reset
        } else {
            TransportFault::Protocol
        });
    }
    let hyper = error.downcast_ref::<hyper::Error>()?;
    if hyper.is_parse() {
        Some(TransportFault::Protocol)
    } else if hyper.is_incomplete_message() || hyper.is_canceled() || hyper.is_closed() {
        Some(closed(phase))
    } else {
        None
    }
}

fn tls_fault(error: &rustls::Error, phase: ExchangePhase) -> TransportFault {
    match (phase, error) {
        (
            ExchangePhase::Dial,
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented,
        ) => TransportFault::Certificate,
        (ExchangePhase::Dial, _) => TransportFault::Tls,
        // TLS 1.3 has the client finish its handshake first: a peer that rejects its certificate,
        // or misses one, reports it in place of a response, and has processed nothing.
        (ExchangePhase::Head, rustls::Error::AlertReceived(alert))
            if is_about_certificates(*alert) =>
        {
            TransportFault::Tls
        }
        (ExchangePhase::Head | ExchangePhase::Body, _) => TransportFault::Protocol,
    }
}

/// Returns whether an alert can only come from the handshake's certificates.
const fn is_about_certificates(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
    )
}

fn io_fault(error: &io::Error, phase: ExchangePhase) -> Option<TransportFault> {
    if error
        .raw_os_error()
        .is_some_and(|number| EXHAUSTED_OS_ERRORS.contains(&number))
    {
        return Some(if phase == ExchangePhase::Dial {
            TransportFault::LocalExhaustion
        } else {
            TransportFault::Reset
        });
    }
    let fault = match error.kind() {
        io::ErrorKind::ConnectionRefused => TransportFault::Refused,
        io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => unreachable(phase),
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory => {
            TransportFault::LocalExhaustion
        }
        io::ErrorKind::TimedOut if phase == ExchangePhase::Dial => TransportFault::ConnectTimeout,
        // While dialling, only the handshake can be torn: an unmade connection cannot.
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof
            if phase == ExchangePhase::Dial =>
        {
            TransportFault::Tls
        }
        // The peer, or the network by silence, dropped an established connection.
        io::ErrorKind::TimedOut
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => TransportFault::Reset,
        io::ErrorKind::UnexpectedEof | io::ErrorKind::NotConnected => closed(phase),
        _ => return None,
    };
    // Only the dialling phase may be called unsent.
    Some(if phase != ExchangePhase::Dial && fault.never_sent() {
        TransportFault::Reset
    } else {
        fault
    })
}

const fn unreachable(phase: ExchangePhase) -> TransportFault {
    match phase {
        ExchangePhase::Dial => TransportFault::Unreachable,
        ExchangePhase::Head | ExchangePhase::Body => TransportFault::Reset,
    }
}

const fn closed(phase: ExchangePhase) -> TransportFault {
    match phase {
        ExchangePhase::Dial => TransportFault::Tls,
        ExchangePhase::Head => TransportFault::ClosedEarly,
        ExchangePhase::Body => TransportFault::Cut,
    }
}

/// Returns a description for people; the reason why no connection was made is quoted, as no fault
/// names it completely.
fn words_of(fault: TransportFault, error: &(dyn Error + 'static)) -> String {
    let mut words = match fault {
        TransportFault::Dns => "the upstream's name could not be resolved",
        TransportFault::Refused => "the upstream's address refuses connections",
        TransportFault::ConnectTimeout => "no connection to the upstream came about in time",
        TransportFault::Unreachable => "the upstream's address cannot be reached",
        TransportFault::Tls => "no secure connection to the upstream came about",
        TransportFault::Certificate => "the upstream's certificate is not trusted",
        TransportFault::LocalExhaustion => "this host has no room for another connection",
        TransportFault::Reset => "the upstream reset the connection",
        TransportFault::ClosedEarly => "the upstream closed the connection before it replied",
        TransportFault::Cut => "the connection broke in the middle of the reply",
        TransportFault::Protocol => "the upstream's reply breaks the rules of HTTP",
        TransportFault::FirstTokenTimeout | TransportFault::IdleTimeout => {
            "the upstream went silent"
        }
        TransportFault::TooLarge => "the reply is too large",
        TransportFault::Deadline => "no time was left",
        TransportFault::ProcessExited => "the upstream's process exited",
        TransportFault::NotStarted => "the upstream's process could not be started",
        TransportFault::NotReady => "the upstream did not become ready",
        TransportFault::Cancelled => "the request was cancelled",
    }
    .to_owned();
    if fault.never_sent() {
        let mut cause = error;
        let mut proxy = None;
        while let Some(deeper) = inner(cause) {
            proxy = proxy.or(cause.downcast_ref::<ProxyError>());
            cause = deeper;
        }
        words.push_str(": ");
        words.push_str(&cause.to_string());
        if let Some(ProxyError { proxy, .. }) = proxy {
            words.push_str(" (connections go through the proxy ");
            words.push_str(proxy);
            words.push(')');
        }
    }
    words.truncate(words.floor_char_boundary(MAX_MESSAGE_BYTES));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_phase(kind: io::ErrorKind, phase: ExchangePhase) -> TransportFault {
        fault_of(&io::Error::from(kind), phase)
    }

    #[test]
    fn a_fault_while_dialling_was_never_sent() {
        for kind in [
            io::ErrorKind::ConnectionRefused,
            io::ErrorKind::HostUnreachable,
            io::ErrorKind::AddrNotAvailable,
            io::ErrorKind::TimedOut,
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::UnexpectedEof,
            io::ErrorKind::PermissionDenied,
        ] {
            assert!(in_phase(kind, ExchangePhase::Dial).never_sent(), "{kind}");
        }
    }

    #[test]
    fn a_fault_after_dialling_is_never_called_unsent() {
        for phase in [ExchangePhase::Head, ExchangePhase::Body] {
            for kind in [
                io::ErrorKind::ConnectionRefused,
                io::ErrorKind::NetworkDown,
                io::ErrorKind::AddrNotAvailable,
                io::ErrorKind::TimedOut,
                io::ErrorKind::ConnectionReset,
                io::ErrorKind::UnexpectedEof,
                io::ErrorKind::PermissionDenied,
            ] {
                assert!(!in_phase(kind, phase).never_sent(), "{kind} in {phase:?}");
            }
        }
    }

    #[test]
    fn a_wrapped_cause_is_found_behind_io_errors() {
        let bad = rustls::Error::InvalidCertificate(rustls::CertificateError::Expired);
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, bad));
        assert_eq!(
            fault_of(&wrapped, ExchangePhase::Dial),
            TransportFault::Certificate
        );
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::HandshakeFailure);
        assert_eq!(
            fault_of(&io::Error::other(alert), ExchangePhase::Dial),
            TransportFault::Tls
        );
        let name = NameError(io::Error::other("no such host"));
        assert_eq!(
            fault_of(&DialError::Failed(Box::new(name)), ExchangePhase::Dial),
            TransportFault::Dns
        );
    }

    #[test]
    fn too_many_open_files_is_exhaustion_of_this_host() {
        assert_eq!(
            fault_of(&io::Error::from_raw_os_error(24), ExchangePhase::Dial),
            TransportFault::LocalExhaustion
        );
    }
}
