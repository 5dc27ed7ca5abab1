//! JSON out of its code fence.
//!
//! A model that is asked for JSON often writes it as a code block of Markdown, sometimes with a
//! sentence before or after. If the caller demands JSON, that block is the completion: the text around
//! it is left out, so that the completion is usable and is not paid for again. Of text that starts as
//! JSON does, every byte passes as it comes.

use std::collections::BTreeMap;

use crate::domain::completion::{BlockKind, Delta};

const FENCES: [&str; 2] = ["```", "~~~"];
/// Mark of a byte order, which some servers write before a text, and parsers of JSON refuse.
const BYTE_ORDER_MARK: char = '\u{feff}';
/// Most text before a fence; more is not a remark about a JSON value.
const MAX_BEFORE: usize = 16 << 10;

/// Takes the JSON of a completion's text blocks out of its fence, as the deltas come.
#[derive(Debug, Default)]
pub struct Unfenced {
    blocks: BTreeMap<u32, FencedText>,
}

/// One text, as far as it was read.
#[derive(Debug)]
enum FencedText {
    /// It is not decided whether a fence comes; all of it is held back.
    Before(String),
    /// There is no fence: everything passes.
    Bare,
    /// Within a fence of these marks; the end may be a fence's, and is held back.
    Within(&'static str, String),
    /// Behind the fence: nothing passes.
    After,
}

// === impl Unfenced ===

impl Unfenced {
    /// Returns the deltas that a delta of the completion becomes, in order.
    pub fn pass(&mut self, delta: Delta) -> Vec<Delta> {
        match delta {
            Delta::BlockStart { block, ref kind } => {
                if *kind == BlockKind::Text {
                    self.blocks.insert(block, FencedText::Before(String::new()));
                }
                vec![delta]
            }
            Delta::BlockDelta { block, text } => {
                let text = match self.blocks.get_mut(&block) {
                    Some(fenced) => fenced.push(&text),
                    None => text,
                };
                Vec::from_iter(written(block, text))
            }
            Delta::BlockStop { block, .. } => {
                let rest = self.blocks.remove(&block).map(FencedText::finish);
                let rest = rest.and_then(|rest| written(block, rest));
                rest.into_iter().chain([delta]).collect()
            }
            Delta::Finish { .. } => {
                let open = std::mem::take(&mut self.blocks).into_iter();
                open.filter_map(|(block, text)| written(block, text.finish()))
                    .chain([delta])
                    .collect()
            }
            Delta::Start { .. }
            | Delta::Usage(_)
            | Delta::Around(_)
            | Delta::ReadOn(_)
            | Delta::ToolReply(_) => vec![delta],
        }
    }
}

fn written(block: u32, text: String) -> Option<Delta> {
    (!text.is_empty()).then_some(Delta::BlockDelta { block, text })
}

// === impl FencedText ===

impl FencedText {
    /// Takes more of the text and returns what of it passes now.
    fn push(&mut self, more: &str) -> String {
        match self {
            Self::Bare => more.to_owned(),
            Self::After => String::new(),
            Self::Before(held) => {
                held.push_str(more);
                match begin(held) {
                    Begin::Undecided => String::new(),
                    Begin::Bare => {
                        let passes = unmarked(held).to_owned();
                        *self = Self::Bare;
                        passes
                    }
                    Begin::Fence(fence, content) => {
                        let content = held.split_off(content);
                        *self = Self::Within(fence, String::new());
                        self.push(&content)
                    }
                }
            }
            Self::Within(marks, held) => {
                held.push_str(more);
                let tail = tail_of(held);
                let (passes, tail) = held.split_at(tail);
                if let Some(fence) = closing(passes, marks) {
                    let passes = passes[..fence].to_owned();
                    *self = Self::After;
                    return passes;
                }
                let passes = passes.to_owned();
                let tail = tail.to_owned();
                *held = tail;
                passes
            }
        }
    }

    /// The text is over: returns what was held back and is a part of it.
    fn finish(self) -> String {
        match self {
            Self::Within(fence, held) if held.contains(fence) => String::new(),
            Self::Before(held) => unmarked(&held).to_owned(),
            Self::Within(_, held) => held,
            Self::Bare | Self::After => String::new(),
        }
    }
}

/// Start of a text.
enum Begin {
    Undecided,
    /// Not with a fence.
    Bare,
    /// With a fence of these marks, whose content starts at this byte.
    Fence(&'static str, usize),
}

fn begin(held: &str) -> Begin {
    let text = held.trim_start_matches(is_blank);
    let Some(first) = text.chars().next() else {
        return Begin::Undecided;
    };
    if matches!(first, '{' | '[' | '"' | '-' | '0'..='9') {
        return Begin::Bare;
    }
    let mut lines = held.split_inclusive('\n').scan(0, |end, line| {
        let start = *end;
        *end += line.len();
        Some((start, line))
    });
    let fence = lines.find_map(|(start, line)| {
        let text = line.trim_start_matches(is_blank);
        let marks = FENCES.into_iter().find(|marks| text.starts_with(marks));
        marks.map(|marks| (marks, start, line))
    });
    let Some((fence, start, line)) = fence else {
        return if held.len() > MAX_BEFORE {
            Begin::Bare
        } else {
            Begin::Undecided
        };
    };
    let marks = line.len() - line.trim_start_matches(is_blank).len() + fence.len();
    // The name of a language, then the content, on the same line or the next.
    let named = line[marks..].trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    if named.is_empty() {
        return Begin::Undecided;
    }
    Begin::Fence(fence, start + line.len() - named.len())
}

/// Returns a text without the mark of a byte order before it.
fn unmarked(text: &str) -> &str {
    text.trim_start_matches(BYTE_ORDER_MARK)
}

/// Returns whether a character before JSON means nothing: white space, or the mark of a byte order.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c == BYTE_ORDER_MARK
}

/// Returns the position in a text at which its end starts that may be a fence: white space and
/// marks, to which more may come.
fn tail_of(text: &str) -> usize {
    text.trim_end_matches(|c: char| c.is_whitespace() || matches!(c, '`' | '~'))
        .len()
}

/// Returns the position at which the content ends in a text that continues: before a line which
/// starts with a fence. A text within JSON holds no line of its own.
fn closing(text: &str, fence: &str) -> Option<usize> {
    text.match_indices(fence)
        .map(|(at, _)| text[..at].trim_end_matches([' ', '\t']))
        .find(|before| before.ends_with('\n'))
        .map(|before| before.trim_end().len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the part that passes of a text that comes in these pieces.
    fn passed<'a>(pieces: impl IntoIterator<Item = &'a str>) -> String {
        let mut unfenced = Unfenced::default();
        let start = Delta::BlockStart {
            block: 0,
            kind: BlockKind::Text,
        };
        let deltas = pieces.into_iter().map(|piece| Delta::BlockDelta {
            block: 0,
            text: piece.to_owned(),
        });
        let stop = Delta::BlockStop {
            block: 0,
            opaque: None,
        };
        let mut text = String::new();
        for delta in [start].into_iter().chain(deltas).chain([stop]) {
            for passed in unfenced.pass(delta) {
                if let Delta::BlockDelta { text: more, .. } = passed {
                    text.push_str(&more);
                }
            }
        }
        text
    }

    #[test]
    fn the_json_in_a_fence_passes_alone() {
        for text in [
            "```json\n{\"a\": 1}\n```",
            "```json\n{\"a\": 1}\n```\n",
            "```\n{\"a\": 1}\n```",
            "\n ```JSON\r\n{\"a\": 1}\r\n```  \n",
            "```json {\"a\": 1}```",
            "```{\"a\": 1}```",
            "Here you are:\n```json\n{\"a\": 1}\n```\nAnything else?",
            "Here you are:\n\n   ```json\n{\"a\": 1}\n   ```\n\n```\nmore\n```",
            "\u{feff}```json\n{\"a\": 1}\n```",
            "~~~json\n{\"a\": 1}\n~~~\n",
            "Here:\n~~~\n{\"a\": 1}\n~~~\n```\nmore\n```",
            "\u{feff}{\"a\": 1}",
            "```json\n{\"a\": 1}",
        ] {
            assert_eq!(passed([text]).trim(), "{\"a\": 1}", "{text:?}");
            let bytes: Vec<String> = text.chars().map(String::from).collect();
            let one_by_one = passed(bytes.iter().map(String::as_str));
            assert_eq!(
                one_by_one.trim(),
                "{\"a\": 1}",
                "{text:?}, a character each"
            );
        }
    }

    #[test]
    fn what_is_not_in_a_fence_passes_as_it_is() {
        for text in [
            "",
            "  ",
            "{\"a\": 1}",
            " [1, 2]\n",
            "\"text\"",
            "-1",
            "true",
            "null",
            "Here you are: a is 1.",
            "{\"code\": \"```\\nx\\n```\"}",
            "``",
        ] {
            assert_eq!(passed([text]), text);
        }
    }

    #[test]
    fn a_fence_ends_with_its_own_marks() {
        let json = "{\"a\": [\n```\n1]}";
        assert_eq!(
            passed([format!("~~~\n{json}\n~~~\nMore.").as_str()]),
            format!("\n{json}")
        );
    }

    #[test]
    fn marks_within_a_text_of_the_json_end_nothing() {
        let json = "{\"code\": \"```py\\nx = 1\\n``` and ```\", \"b\": \"`\"}";
        let text = format!("```json\n{json}\n```");
        for at in (0..=text.len()).filter(|at| text.is_char_boundary(*at)) {
            assert_eq!(
                passed([&text[..at], &text[at..]]).trim(),
                json,
                "cut at {at}"
            );
        }
    }

    proptest! {
        #[test]
        fn however_a_text_is_cut_the_same_passes(
            before in "[A-Za-z .:\n]{0,20}",
            json in prop::collection::btree_map("[a-z`\n ]{0,6}", "[a-z`\n ]{0,8}", 0..4),
            is_pretty in any::<bool>(),
            is_fenced in any::<bool>(),
            cuts in prop::collection::vec(0_usize..200, 0..6),
        ) {
            let json = if is_pretty {
                serde_json::to_string_pretty(&json).unwrap()
            } else {
                serde_json::to_string(&json).unwrap()
            };
            let text = if is_fenced { format!("{before}\n```json\n{json}\n```\n") } else { json.clone() };
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|ends| &text[ends[0]..ends[1]]);
            let passed = passed(pieces);
            prop_assert_eq!(passed.trim(), json.trim());
        }
    }
}
