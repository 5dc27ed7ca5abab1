//! URLs of HTTP servers: what has to be right about each of them, whatever it is for.

use http::{Uri, uri::Authority};

/// Fault of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HttpUrlFault {
    /// It is no URL of an HTTP server.
    NotOne,
    /// Nothing listens on such a port.
    Port,
}

/// Returns a URL with `http` or `https`, a host, and a port that exists if it names one.
pub(super) fn http_url(text: &str) -> Result<Uri, HttpUrlFault> {
    let uri: Uri = text.parse().map_err(|_| HttpUrlFault::NotOne)?;
    let has_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
    match uri.authority() {
        Some(authority) if has_scheme && !authority.host().is_empty() => {
            if has_usable_port(authority) {
                Ok(uri)
            } else {
                Err(HttpUrlFault::Port)
            }
        }
        Some(_) | None => Err(HttpUrlFault::NotOne),
    }
}

/// Returns whether a server can listen on the port that is named, if there is one.
pub(super) fn has_usable_port(authority: &Authority) -> bool {
    let place = authority.as_str().rsplit('@').next().unwrap_or_default();
    match place.rsplit_once(':') {
        // The end of an IPv6 address is no port.
        Some((_, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok_and(|port| port > 0),
        Some(_) | None => true,
    }
}

// === impl HttpUrlFault ===

impl HttpUrlFault {
    /// Returns the reason for which it cannot be, with a URL that can.
    pub(super) fn reason(self, example: &str) -> String {
        match self {
            Self::NotOne => format!("is no URL; write it like {example}"),
            Self::Port => "has no port from 1 to 65535".to_owned(),
        }
    }
}
