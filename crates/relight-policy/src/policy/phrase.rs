//! Parses the notation in which rules write their phrases (explained in `rules/README.md`).
//!
//! A part with few spellings is expanded; a part with many becomes a chain of its pieces, so that
//! the automaton grows with the number of words and not with the number of sentences.

use crate::domain::failure::Surface;

/// Most bytes between two parts of an ordered phrase.
pub(super) const NEAR: usize = 90;
/// Spellings up to which a part is written out.
const WRITTEN_OUT: usize = 6;
/// Bytes that an optional word of a long part may take.
const OPTIONAL: usize = 26;

/// Bytes that the rest of a word after an open stem may take.
const STEM: usize = 12;

/// A parsed phrase.
#[derive(Debug, Default)]
pub(super) struct Phrase {
    /// Ordered parts.
    pub chain: Vec<PhrasePart>,
    /// Groups of which one must occur anywhere.
    pub with: Vec<Vec<String>>,
    /// Groups of which none may occur anywhere.
    pub without: Vec<Vec<String>>,
    /// If set, the first part must be a whole keyed value.
    pub whole_value: bool,
    /// Surfaces, if limited.
    pub surfaces: Vec<Surface>,
    /// Status ranges, if limited.
    pub statuses: Vec<(u16, u16)>,
    /// Provider families, if limited.
    pub providers: Vec<String>,
    /// A numeric code that must occur in the text.
    pub number: Option<u32>,
}

/// One part: any of these spellings, at most `gap` bytes after the part before.
#[derive(Debug)]
pub(super) struct PhrasePart {
    pub spellings: Vec<String>,
    pub gap: usize,
    /// The only words allowed in the gap; `None` for any.
    pub between: Option<Vec<String>>,
}

/// Reads a phrase; one that holds ordered parts inside braces becomes several.
pub(super) fn read(text: &str) -> Vec<Phrase> {
    unfold(text).iter().map(|text| phrase(text)).collect()
}

fn phrase(text: &str) -> Phrase {
    let mut phrase = Phrase::default();
    let text = &text.replace("}..", "} ..").replace(".. .. ", ".. ");
    for part in split_top(text, " & ") {
        let mut words = part.trim();
        while let Some((before, condition)) = words.rsplit_once('@') {
            phrase.condition(condition.trim());
            words = before.trim_end();
        }
        let mut pieces = split_top(words, " !").into_iter();
        let positive = pieces.next().unwrap_or_default().trim();
        phrase
            .without
            .extend(pieces.map(|piece| spread(piece.trim())));
        if positive.is_empty() {
            continue;
        }
        if !phrase.chain.is_empty() {
            phrase.with.push(spread(positive));
            continue;
        }
        let positive = positive.strip_prefix('=').map_or(positive, |rest| {
            phrase.whole_value = true;
            rest
        });
        for piece in split_top(positive, " .. ") {
            if phrase.whole_value {
                // A value is compared as a whole, so it cannot be cut into pieces.
                phrase.chain.push(PhrasePart {
                    spellings: spread(piece.trim()),
                    gap: NEAR,
                    between: None,
                });
            } else {
                phrase.chain.extend(pieces_of(piece.trim()));
            }
        }
    }
    phrase
}

// === impl Phrase ===

impl Phrase {
    fn condition(&mut self, condition: &str) {
        debug_assert!(
            !condition.contains(' '),
            "words behind a condition: {condition}"
        );
        match condition {
            "http" => self.surfaces.push(Surface::Http),
            "transport" => self.surfaces.push(Surface::Transport),
            "stream" => self.surfaces.push(Surface::Stream),
            "grpc" => self.surfaces.push(Surface::Grpc),
            "tool" => self.surfaces.push(Surface::Tool),
            "2xx" => self.statuses.push((200, 299)),
            "4xx" => self.statuses.push((400, 499)),
            "5xx" => self.statuses.push((500, 599)),
            other => {
                if let Some(number) = other.strip_prefix("num:") {
                    self.number = number.parse().ok();
                    debug_assert!(self.number.is_some(), "no number: {other}");
                } else if let Some(provider) = other.strip_prefix("by:") {
                    self.providers.push(provider.to_owned());
                } else {
                    let status = other.parse();
                    debug_assert!(status.is_ok(), "no condition: {other}");
                    self.statuses.extend(status.map(|status| (status, status)));
                }
            }
        }
    }
}

/// Splits at a separator outside braces.
fn split_top<'t>(text: &'t str, separator: &str) -> Vec<&'t str> {
    let mut parts = Vec::new();
    let mut depth = 0_usize;
    let mut from = 0;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ if depth == 0
                && at >= from
                && text.as_bytes()[at..].starts_with(separator.as_bytes()) =>
            {
                parts.push(&text[from..at]);
                from = at + separator.len();
            }
            _ => {}
        }
    }
    parts.push(&text[from.min(text.len())..]);
    parts
}

/// Returns the first top-level brace: its span and its options.
fn brace(text: &str) -> Option<(usize, usize, Vec<&str>)> {
    let from = text.find('{')?;
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate().skip(from) {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some((from, at + 1, split_top(&text[from + 1..at], "|")));
                }
            }
            _ => {}
        }
    }
    None
}

/// Removes the braces around options that are ordered phrases themselves.
fn unfold(text: &str) -> Vec<String> {
    let mut at = 0;
    while let Some((from, to, options)) = brace(&text[at..]) {
        let (ordered, plain): (Vec<&str>, Vec<&str>) = options
            .iter()
            .copied()
            .partition(|option| option.contains(" .. ") || option.contains("* "));
        if ordered.is_empty() {
            at += to;
            continue;
        }
        let before = &text[..at + from];
        let after = &text[at + to..];
        let mut texts: Vec<String> = ordered
            .iter()
            .map(|option| format!("{before}{option}{after}"))
            .collect();
        if !plain.is_empty() {
            texts.push(format!("{before}{{{}}}{after}", plain.join("|")));
        }
        return texts.iter().flat_map(|text| unfold(text)).collect();
    }
    vec![text.to_owned()]
}

/// Writes a part out, or cuts it into pieces when it has many spellings or an open stem inside.
fn pieces_of(part: &str) -> Vec<PhrasePart> {
    if spellings(part) <= WRITTEN_OUT && !spread(part).iter().any(|words| words.contains("* ")) {
        return vec![PhrasePart {
            spellings: spread(part),
            gap: NEAR,
            between: None,
        }];
    }
    let mut pieces: Vec<PhrasePart> = Vec::new();
    let mut between: Vec<String> = Vec::new();
    let mut piece = |words: Vec<String>, between: &mut Vec<String>| {
        let between = std::mem::take(between);
        pieces.push(if pieces.is_empty() {
            PhrasePart {
                spellings: words,
                gap: NEAR,
                between: None,
            }
        } else {
            let gap = STEM + if between.is_empty() { 0 } else { OPTIONAL };
            PhrasePart {
                spellings: words,
                gap,
                between: Some(between),
            }
        });
    };
    let mut rest = part;
    while !rest.is_empty() {
        let (literal, options, after) = match brace(rest) {
            Some((from, to, options)) => (&rest[..from], options, &rest[to..]),
            None => (rest, Vec::new(), ""),
        };
        for words in literal
            .split_inclusive("* ")
            .map(str::trim)
            .filter(|words| !words.is_empty())
        {
            piece(vec![words.to_owned()], &mut between);
        }
        if options.iter().any(|option| option.is_empty()) {
            between.extend(
                options
                    .iter()
                    .flat_map(|option| option.split_whitespace())
                    .map(str::to_owned),
            );
        } else if !options.is_empty() {
            let words: Vec<String> = options
                .iter()
                .flat_map(|option| spread(option.trim()))
                .collect();
            let rests = longer(&words);
            piece(words, &mut between);
            between = rests;
        }
        rest = after;
    }
    pieces
}

/// Returns the rests of options that start with another option: a search that matched the shorter
/// one has to skip them.
fn longer(options: &[String]) -> Vec<String> {
    let rests = options.iter().flat_map(|short| {
        options
            .iter()
            .filter_map(|long| long.strip_prefix(short.as_str())?.strip_prefix(' '))
            .flat_map(str::split_whitespace)
    });
    rests.map(str::to_owned).collect()
}

fn spellings(part: &str) -> usize {
    match brace(part) {
        Some((_, to, options)) => options
            .iter()
            .map(|option| spellings(option))
            .sum::<usize>()
            .saturating_mul(spellings(&part[to..])),
        None => 1,
    }
}

/// Writes out every spelling.
fn spread(part: &str) -> Vec<String> {
    match brace(part) {
        Some((from, to, options)) => options
            .iter()
            .flat_map(|option| spread(&format!("{}{option}{}", &part[..from], &part[to..])))
            .collect(),
        None => vec![part.split_whitespace().collect::<Vec<_>>().join(" ")],
    }
}
