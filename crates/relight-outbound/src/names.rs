//! Resolves the names that are dialled, with an error type of its own and without the addresses
//! that are not allowed.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

/// A name that does not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve")]
pub struct NameError(#[source] pub(super) io::Error);

/// System's resolver, with an error of its own. Private addresses are left out if they are not
/// allowed: the addresses of a name are not known before it is dialled, and the next time they may
/// differ.
#[derive(Clone)]
pub struct Names {
    resolver: GaiResolver,
    allow_private: bool,
}

// === impl Names ===

impl Names {
    pub(super) fn new(allow_private: bool) -> Self {
        Self {
            resolver: GaiResolver::new(),
            allow_private,
        }
    }
}

impl Service<Name> for Names {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = NameError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, NameError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), NameError>> {
        self.resolver.poll_ready(cx).map_err(NameError)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let resolving = self.resolver.call(name);
        let allow_private = self.allow_private;
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = resolving.await.map_err(NameError)?.collect();
            public(addresses, allow_private).map(Vec::into_iter)
        })
    }
}

/// Returns the addresses that may be dialled.
fn public(
    mut addresses: Vec<SocketAddr>,
    allow_private: bool,
) -> Result<Vec<SocketAddr>, NameError> {
    addresses.retain(|address| allow_private || !is_private_address(address.ip()));
    if addresses.is_empty() {
        let reason = "it leads to private addresses only; write allow_private_addresses: true if that is meant";
        return Err(NameError(io::Error::new(
            io::ErrorKind::PermissionDenied,
            reason,
        )));
    }
    Ok(addresses)
}

/// Returns whether an address belongs to a range that is private, of one link or of no host, or at
/// which an operator's own translation, carrier or test network may respond.
#[must_use]
pub fn is_private_address(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_special = match v4.octets() {
                // Shared by carriers and clouds (RFC 6598), assigned by protocols (RFC 6890), for
                // measurements of devices (RFC 2544), reserved or for all hosts (RFC 1112).
                [100, second, ..] => second & 0xc0 == 64,
                [192, 0, 0, _] | [0 | 240..=255, ..] => true,
                [198, second, ..] => second & 0xfe == 18,
                _ => false,
            };
            is_special || v4.is_private() || v4.is_link_local() || v4.is_unspecified()
        }
        IpAddr::V6(v6) => {
            let is_special = match v6.segments() {
                // Translated to IPv4 (RFC 6052, RFC 8215), site-local (RFC 3879).
                [0x64, 0xff9b, ..] => true,
                [first, ..] => first & 0xffc0 == 0xfec0,
            };
            is_special || v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_unspecified()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_private_addresses_only_where_they_are_allowed() {
        let addresses = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.parse().unwrap())
                .collect::<Vec<SocketAddr>>()
        };
        let private = addresses(&[
            "10.1.2.3:443",
            "169.254.169.254:80",
            "[fd00::1]:443",
            "[::ffff:192.168.0.1]:443",
            "0.0.0.0:1",
            "100.64.0.1:443",
            "100.127.255.254:443",
            "198.18.0.1:443",
            "198.19.255.254:443",
            "192.0.0.170:443",
            "240.0.0.1:443",
            "[64:ff9b::a00:1]:443",
            "[64:ff9b:1::1]:443",
            "[fec0::1]:443",
            "[feff::1]:443",
        ]);
        assert!(public(private.clone(), false).is_err());
        assert_eq!(public(private.clone(), true).unwrap(), private);
        let others = addresses(&[
            "203.0.113.7:443",
            "127.0.0.1:443",
            "[2001:db8::1]:443",
            "100.63.255.254:443",
            "100.128.0.1:443",
            "198.17.0.1:443",
            "198.20.0.1:443",
            "192.0.1.1:443",
            "[64:ff9a::1]:443",
        ]);
        assert_eq!(
            public([private, others.clone()].concat(), false).unwrap(),
            others
        );
    }
}
