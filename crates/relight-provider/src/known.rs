//! Known facts about models and the servers that offer them: one table of data, read once.
//!
//! Models differ in what they accept and where, and a wrong guess is a rejection. The table is
//! `known.yaml`, with the configuration's names, and the configuration takes precedence. Nothing is
//! fetched over the network, and what is not known stays at its default.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::{
    CapabilityOverrides, KeyHeader,
    domain::target::{Capabilities, Dialect},
};

const TABLE: &str = include_str!("known.yaml");

/// A model and how it is reached.
#[derive(Debug, Clone, Copy)]
pub struct ModelRef<'a> {
    /// The wire protocol of its server.
    pub dialect: Dialect,
    /// The provider's family, in lower case.
    pub family: &'a str,
    /// Address at which its API starts.
    pub endpoint: &'a str,
    /// Model, as the provider names it; empty if no particular one is meant.
    pub model: &'a str,
}

/// Conventions of a server, if its configuration does not set them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Manners {
    /// Way in which keys are sent.
    pub api_key_header: Option<KeyHeader>,
    /// The field in which reasoning is sent back.
    pub reasoning_field: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownServer {
    when: When,
    #[serde(default)]
    able: CapabilityOverrides,
    #[serde(default)]
    manners: Manners,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct When {
    dialect: Option<Dialect>,
    /// Patterns for the family or the endpoint's host.
    at: Vec<String>,
    model: Vec<String>,
}

static RECORDS: LazyLock<Vec<KnownServer>> = LazyLock::new(|| read().unwrap_or_default());

fn read() -> Result<Vec<KnownServer>, serde_saphyr::Error> {
    serde_saphyr::from_str(TABLE)
}

/// Returns the capabilities of a model there, as far as they are known.
#[must_use]
pub fn capabilities(place: &ModelRef<'_>) -> Capabilities {
    let fitting = RECORDS.iter().filter(|record| record.when.fits(place));
    fitting.fold(Capabilities::default(), |known, record| {
        record.able.apply(known)
    })
}

/// Returns the known conventions of a server.
#[must_use]
pub fn manners(place: &ModelRef<'_>) -> Manners {
    let fitting = RECORDS.iter().filter(|record| record.when.fits(place));
    fitting.fold(Manners::default(), |known, record| Manners {
        api_key_header: record.manners.api_key_header.or(known.api_key_header),
        reasoning_field: record
            .manners
            .reasoning_field
            .clone()
            .or(known.reasoning_field),
    })
}

// === impl When ===

impl When {
    fn fits(&self, place: &ModelRef<'_>) -> bool {
        let host = host(place.endpoint);
        let is_at = |pattern: &String| matches(pattern, place.family) || matches(pattern, host);
        self.dialect.is_none_or(|dialect| dialect == place.dialect)
            && (self.at.is_empty() || self.at.iter().any(is_at))
            && (self.model.is_empty()
                || self
                    .model
                    .iter()
                    .any(|pattern| matches(pattern, place.model)))
    }
}

/// Returns the host of a URL, without its port.
fn host(url: &str) -> &str {
    let behind = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = behind.split(['/', '?']).next().unwrap_or_default();
    authority.split(':').next().unwrap_or_default()
}

/// Returns whether a text matches a pattern, in which `*` matches anything.
fn matches(pattern: &str, text: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = pieces.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pieces.next_back() else {
        return rest.is_empty();
    };
    for piece in pieces {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests;
