//! Why a server cannot be reached, in words that name what helps: another address, `https://`,
//! another authority.

use std::{error::Error, fmt, io, sync::Arc, time::Duration};

use rustls::CertificateError;
use tonic::{
    Status,
    transport::{self, ClientTlsConfig, Endpoint},
};

use super::CONNECT_TIMEOUT;
use crate::{cli::terminal::one_line, domain::units::duration_text};

/// Time that it may take to find out whether a server serves TLS.
const TLS_PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends of a connection that a server accepted first, so that it is its handshake which failed.
const CUT: [io::ErrorKind; 3] = [
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::BrokenPipe,
];

/// The connection to a server failed, so that the server decided nothing.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Unreachable {
    message: String,
    is_silent: bool,
}

// === impl Unreachable ===

impl Unreachable {
    /// The server accepts connections, and then sends nothing.
    pub(super) fn silent(address: &str, limit: Duration) -> Self {
        let limit = duration_text(limit);
        let message = format!(
            "the server at {address} accepts connections but does not respond within {limit}"
        );
        Self {
            message,
            is_silent: true,
        }
    }

    /// No connection came about.
    pub(super) fn unconnected(address: &str, error: &transport::Error) -> Self {
        let reason = innermost(error);
        let is_cut = find_io(error).is_some_and(|error| CUT.contains(&error.kind()));
        let message = match tls_fault(address, error) {
            Some(fault) => fault,
            None if is_cut => format!(
                "the server at {address} broke the TLS handshake off ({reason}); where it serves no TLS, write http:// \
                 in --address"
            ),
            None => format!(
                "no server at {address}: {reason}; start one with `relight serve`, or name another with --address"
            ),
        };
        Self {
            message,
            is_silent: false,
        }
    }

    /// Returns whether a call failed for this cause, and not by a decision of the server.
    pub(in crate::cli) fn is_cause_of(status: &Status) -> bool {
        Self::cause_of(status).is_some()
    }

    /// Returns whether a call failed because the server sent nothing; another one on the same
    /// connection would do so, too.
    pub(in crate::cli) fn is_silence(status: &Status) -> bool {
        Self::cause_of(status).is_some_and(|cause| cause.is_silent)
    }

    fn cause_of(status: &Status) -> Option<&Self> {
        status.source()?.downcast_ref()
    }
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Unreachable {}

impl From<Unreachable> for Status {
    fn from(unreachable: Unreachable) -> Self {
        let mut status = Self::unavailable(unreachable.message.clone());
        status.set_source(Arc::new(unreachable));
        status
    }
}

/// Explains a call that failed on its connection, which may have been made anew for it.
pub(super) async fn broken(address: &str, error: transport::Error) -> Unreachable {
    let reason = innermost(&error);
    let message = if let Some(fault) = tls_fault(address, &error) {
        fault
    } else if is_refused(&error) {
        format!("no server at {address}: {reason}")
    } else if serves_tls(address).await {
        format!(
            "the server at {address} serves TLS; write https:// in --address, and name the authority that signed its \
             certificate with --ca-file"
        )
    } else {
        format!("the connection to the server at {address} broke: {reason}")
    };
    Unreachable {
        message,
        is_silent: false,
    }
}

/// Returns the fault if TLS itself failed.
fn tls_fault(address: &str, error: &transport::Error) -> Option<String> {
    Some(match find::<rustls::Error>(error)? {
        rustls::Error::InvalidCertificate(fault) => {
            format!(
                "the certificate of the server at {address} was not accepted: {}",
                certificate_fault(fault)
            )
        }
        rustls::Error::InvalidMessage(_) => {
            format!("the server at {address} does not serve TLS; write http:// in --address")
        }
        other => format!("no TLS connection to the server at {address} came about: {other}"),
    })
}

/// Returns the reason why a certificate was not accepted.
fn certificate_fault(fault: &CertificateError) -> String {
    match fault {
        // Of another authority of the same name only the signature differs.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority in --ca-file signed it".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "it has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "it is not valid yet".to_owned()
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => {
            let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
            let names = if names.is_empty() {
                "no name at all".to_owned()
            } else {
                one_line(&names.join(", "))
            };
            format!("it is for {names}, and not for {}", expected.to_str())
        }
        other => one_line(&other.to_string()),
    }
}

/// Returns the name in `DnsName("relight.internal")`.
fn bare(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, name)| {
        name.trim_end_matches(')').trim_matches('"')
    })
}

/// Returns whether the server at an address without TLS is one that serves TLS: it then responds to
/// a TLS handshake.
async fn serves_tls(address: &str) -> bool {
    let Some(host) = address.strip_prefix("http://") else {
        return false;
    };
    // Without an authority no certificate is accepted, so that only its refusal is of interest.
    let tls = ClientTlsConfig::new()
        .domain_name("localhost")
        .timeout(TLS_PROBE_TIMEOUT);
    let endpoint = Endpoint::from_shared(format!("https://{host}"))
        .and_then(|endpoint| endpoint.tls_config(tls));
    let Ok(endpoint) = endpoint else { return false };
    match endpoint.connect_timeout(TLS_PROBE_TIMEOUT).connect().await {
        Ok(_) => true,
        Err(error) => matches!(
            find::<rustls::Error>(&error),
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::AlertReceived(_))
        ),
    }
}

/// Returns whether nothing listens there.
fn is_refused(error: &transport::Error) -> bool {
    find_io(error).is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Returns the innermost error in plain words, which is the cause; the errors around it only name
/// the place.
pub(super) fn innermost(error: &transport::Error) -> String {
    if find_io(error).is_some_and(|error| error.kind() == io::ErrorKind::TimedOut) {
        return format!(
            "it accepted no connection within {}",
            duration_text(CONNECT_TIMEOUT)
        );
    }
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    one_line(&innermost.to_string())
}

fn find_io(error: &transport::Error) -> Option<&io::Error> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// Returns the first error of this kind among the causes; what an I/O error wraps is one of them.
fn find<E: Error + 'static>(error: &transport::Error) -> Option<&E> {
    chain(error).find_map(|error| {
        let wrapped = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        error
            .downcast_ref()
            .or_else(|| wrapped.and_then(|wrapped| wrapped.downcast_ref()))
    })
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn a_certificate_is_refused_with_the_reason_in_plain_words() {
        let other_name = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("127.0.0.1").unwrap(),
            presented: vec!["DnsName(\"localhost\")".to_owned()],
        };
        for (fault, words) in [
            (
                CertificateError::UnknownIssuer,
                "no authority in --ca-file signed it",
            ),
            (CertificateError::Expired, "it has expired"),
            (CertificateError::NotValidYet, "it is not valid yet"),
            (other_name, "it is for localhost, and not for 127.0.0.1"),
            (
                CertificateError::BadSignature,
                "no authority in --ca-file signed it",
            ),
            (CertificateError::Revoked, "Revoked"),
        ] {
            assert_eq!(certificate_fault(&fault), words);
        }
    }

    #[test]
    fn only_a_broken_connection_makes_a_server_unreachable() {
        let silent = Unreachable::silent("http://127.0.0.1:1", Duration::from_secs(10));
        let silent = Status::from(silent);
        assert!(Unreachable::is_cause_of(&silent) && Unreachable::is_silence(&silent));
        assert!(!Unreachable::is_cause_of(&Status::unavailable("draining")));
    }
}
