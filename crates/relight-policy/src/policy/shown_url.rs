//! URLs in their printable form, without what is secret in them.

/// Returns a URL in its printable form: without user, password and the values of its query.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let (scheme, rest) = url
        .split_once("://")
        .map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (place, query) = rest
        .split_once('?')
        .map_or((rest, None), |(place, query)| (place, Some(query)));
    let (authority, path) = place.find('/').map_or((place, ""), |at| place.split_at(at));
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let user = if host.len() < authority.len() {
        "[redacted]@"
    } else {
        ""
    };
    let query = query.map(|query| {
        let shown = |pair: &str| match pair.split_once('=') {
            Some((name, value)) if !is_plain(name, value) => format!("{name}=[redacted]"),
            Some(_) | None => pair.to_owned(),
        };
        format!(
            "?{}",
            query.split('&').map(shown).collect::<Vec<_>>().join("&")
        )
    });
    let scheme = if scheme.is_empty() {
        String::new()
    } else {
        format!("{scheme}://")
    };
    format!("{scheme}{user}{host}{path}{}", query.unwrap_or_default())
}

/// Returns whether the value of a query may be shown: Azure's API version is not a secret, nor is
/// the place of a tool's argument.
pub fn is_plain(name: &str, value: &str) -> bool {
    name == "api-version" || (value.starts_with('{') && value.ends_with('}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_is_secret_in_it() {
        for (url, shown) in [
            ("https://host.example/v1", "https://host.example/v1"),
            (
                "https://me:pw@host.example:8443/v1",
                "https://[redacted]@host.example:8443/v1",
            ),
            (
                "https://h/v1?api-version=1&code=k",
                "https://h/v1?api-version=1&code=[redacted]",
            ),
            ("h/v1?k", "h/v1?k"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}
