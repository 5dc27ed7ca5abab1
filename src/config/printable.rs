//! URLs of settings, written in their printable form.

use serde::{Serialize as _, Serializer};

use crate::policy::shown_url::shown_url;

/// Writes a URL in its printable form.
pub(super) fn shown<S: Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    shown_url(url).serialize(serializer)
}

/// Works the same if there is one.
#[expect(clippy::ref_option, reason = "serde passes fields by reference")]
pub(super) fn shown_where_there_is_one<S: Serializer>(
    url: &Option<String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    url.as_deref().map(shown_url).serialize(serializer)
}
