//! Requests that web pages make: taken if the page's origin is in `server.cors.allow_origins`,
//! and from the console's own page.
//!
//! A browser names the origin of the page with whatever could change something, and no page can
//! leave it out or forge it; programs that are not browsers name none. A page whose name leads to
//! this host (DNS rebinding) has, for its browser, the origin of this server. It has no key,
//! though: so, if callers need none, the server's own origin is that of an address or of
//! `localhost` alone, which no other's name is.

use std::net::{IpAddr, Ipv6Addr};

use axum::http::{HeaderMap, Uri, header};

use super::Intake;

impl Intake {
    /// Whether a page of this origin may call: one that is allowed, or the server's own.
    pub(super) fn takes_origin(&self, headers: &HeaderMap, uri: &Uri) -> bool {
        let needs_key = self.authenticator.load().authenticates();
        let own = authority(headers, uri).filter(|own| needs_key || is_own_by_name(own));
        let mut origins = headers.get_all(header::ORIGIN).iter();
        origins.all(|origin| {
            self.cors.allows(origin.as_bytes())
                || own.is_some_and(|own| is_of(origin.as_bytes(), own))
        })
    }
}

/// Returns the authority to which the request was sent, as its client has it.
fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let host = || headers.get(header::HOST)?.to_str().ok();
    uri.authority()
        .map(axum::http::uri::Authority::as_str)
        .or_else(host)
}

/// Returns whether an origin is a page of this server.
fn is_of(origin: &[u8], authority: &str) -> bool {
    let host = [b"http://".as_slice(), b"https://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(*scheme));
    host.is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes()))
}

/// Returns whether an authority is an address, or this host's own name.
fn is_own_by_name(authority: &str) -> bool {
    let of_address = authority
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .map(|(address, port)| {
            address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'))
        });
    let host = authority
        .rsplit_once(':')
        .map_or(authority, |(host, _)| host);
    of_address
        .unwrap_or_else(|| host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_and_localhost_are_this_host_whatever_a_name_leads_to() {
        for (authority, is_own) in [
            ("127.0.0.1:50051", true),
            ("127.0.0.1", true),
            ("10.0.0.7:50051", true),
            ("[::1]:50051", true),
            ("localhost:50051", true),
            ("LocalHost", true),
            ("evil.example:50051", false),
            ("127.0.0.1.evil.example:50051", false),
            ("localhost.evil.example", false),
            ("[::1].evil.example", false),
            ("", false),
            (":50051", false),
        ] {
            assert_eq!(is_own_by_name(authority), is_own, "{authority}");
        }
    }

    #[test]
    fn an_origin_is_of_an_authority_that_is_the_same_with_its_port() {
        assert!(is_of(b"http://127.0.0.1:50051", "127.0.0.1:50051"));
        assert!(is_of(b"https://Relight.example", "relight.example"));
        for other in [
            "http://127.0.0.1:50052",
            "http://127.0.0.1",
            "null",
            "",
            "file://127.0.0.1:50051",
            "127.0.0.1:50051",
        ] {
            assert!(!is_of(other.as_bytes(), "127.0.0.1:50051"), "{other}");
        }
    }
}
