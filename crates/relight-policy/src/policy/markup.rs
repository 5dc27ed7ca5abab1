//! Parts of a text that hold no words of a failure: the tags, scripts and styles of a page, and what
//! was put in the place of a secret.

/// Words that stand alone in the place of others (`[Filtered]`, `<removed>`).
const IN_PLACE: &str = "filtered|hidden|removed|censored|omitted|elided|truncated|sanitized";
/// Words that do so among others, too (`[REDACTED_API_KEY]`).
const HIDING: &str = "redacted|masked|scrubbed";
/// Most bytes of what was put in the place of others.
const NEAR: usize = 40;

/// Returns whether a page of HTML starts here.
pub(super) fn begins_page(text: &str) -> bool {
    begins(text, "<!doctype html") || begins(text, "<html")
}

/// Returns the length to skip of a text that starts with a sign: all that holds no words, else the
/// sign. Of a page, a whole tag, since its name and attributes do not describe a failure.
pub(super) fn wordless(text: &str, page: bool) -> usize {
    let whole = || placeholder(text).or_else(|| code(text));
    let tag = || tag(text).filter(|_| page);
    whole().or_else(tag).unwrap_or(1)
}

fn begins(text: &str, begin: &str) -> bool {
    let head = text.get(..begin.len());
    head.is_some_and(|head| head.eq_ignore_ascii_case(begin))
}

/// Returns the length of a script or a style.
fn code(text: &str) -> Option<usize> {
    let end = match text {
        _ if begins(text, "<script") => "</script",
        _ if begins(text, "<style") => "</style",
        _ => return None,
    };
    let mut signs = text.match_indices("</").map(|(at, _)| at);
    let at = signs.find(|at| begins(&text[*at..], end))?;
    Some(at + end.len())
}

/// Returns the length of a tag before the sign that ends it; an incomplete tag is not a tag.
fn tag(text: &str) -> Option<usize> {
    let [b'<', b'a'..=b'z' | b'A'..=b'Z' | b'/' | b'!', ..] = text.as_bytes() else {
        return None;
    };
    let end = 1 + text[1..].find(['<', '>'])?;
    text[end..].starts_with('>').then_some(end)
}

/// Returns the length of what was put in the place of a secret, or of words too many.
fn placeholder(text: &str) -> Option<usize> {
    let inside = text.trim_start_matches(['[', '<', '{', '*']);
    let from = text.len() - inside.len();
    let near = &inside[..inside.floor_char_boundary(NEAR.min(inside.len()))];
    let at = near.find([']', '>', '}', '*']).filter(|_| from > 0)?;
    let words = inside[..at].trim().to_ascii_lowercase();
    let mut each = words.split(|c: char| !c.is_alphanumeric());
    let is_among = |words: &str, word: &str| words.split('|').any(|one| one == word);
    let is_hidden = is_among(IN_PLACE, &words) || each.any(|word| is_among(HIDING, word));
    is_hidden.then_some(from + at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_no_words_is_skipped_as_a_whole() {
        for (text, page, skipped) in [
            ("[redacted] x", false, "[redacted]"),
            ("<REDACTED_API_KEY>", false, "<REDACTED_API_KEY>"),
            ("**redacted** x", false, "**redacted*"),
            ("[Filtered]", false, "[Filtered]"),
            ("[content filtered]", false, "["),
            ("[removed by the owner]", false, "["),
            ("redacted]", false, "r"),
            ("<script>a < b</SCRIPT>c", false, "<script>a < b</SCRIPT"),
            ("<style>a</style>", true, "<style>a</style"),
            ("<script>a", false, "<"),
            ("<script src='a'>a", true, "<script src='a'"),
            ("<p class='a'>b", true, "<p class='a'"),
            ("<p class='a'>b", false, "<"),
            ("<p <b>", true, "<"),
        ] {
            assert_eq!(&text[..wordless(text, page)], skipped, "{text}");
        }
    }
}
