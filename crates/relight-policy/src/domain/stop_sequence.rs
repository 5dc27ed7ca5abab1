//! Stop sequences in a text that grows.

/// Returns the end of the text before the first stop sequence: the first one that is whole counts,
/// as it does for a model that writes it. `None` if there is none.
#[must_use]
pub fn cut_at(text: &str, stops: &[String]) -> Option<usize> {
    let found = stops.iter().filter_map(|stop| {
        let begins = text.find(stop.as_str())?;
        Some((begins + stop.len(), begins))
    });
    found.min().map(|(_, begins)| begins)
}

/// Returns the number of bytes at the end of a text that may be the beginning of a stop sequence.
#[must_use]
pub fn unsure_bytes(text: &str, stops: &[String]) -> usize {
    let longest = |stop: &String| {
        let max = text.len().min(stop.len().saturating_sub(1));
        (1..=max)
            .rev()
            .find(|len| text.as_bytes().ends_with(&stop.as_bytes()[..*len]))
    };
    stops.iter().filter_map(longest).max().unwrap_or(0)
}
