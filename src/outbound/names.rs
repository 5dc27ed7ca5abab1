//! Resolves the names that are dialled, with an error type of its own and without the addresses
//! that are not allowed.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::dns::{GaiResolver, Name};
use tower::Service;

use crate::config::provider::is_private_address;

/// A name that does not resolve.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve")]
pub struct NameError(#[source] pub(super) io::Error);

/// The system's resolver, with an error of its own. Private addresses are left out where they are
/// not allowed: where a name leads is not known before it is dialled, and the next time it may lead
/// elsewhere.
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
        let (resolving, allow_private) = (self.resolver.call(name), self.allow_private);
        Box::pin(async move {
            let addresses: Vec<SocketAddr> = resolving.await.map_err(NameError)?.collect();
            public(addresses, allow_private).map(Vec::into_iter)
        })
    }
}

/// The addresses that may be dialled.
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
        ]);
        assert!(public(private.clone(), false).is_err());
        assert_eq!(public(private.clone(), true).unwrap(), private);
        let others = addresses(&["203.0.113.7:443", "127.0.0.1:443", "[2001:db8::1]:443"]);
        assert_eq!(
            public([private, others.clone()].concat(), false).unwrap(),
            others
        );
    }
}
