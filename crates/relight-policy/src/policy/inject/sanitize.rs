//! Makes a text safe to show inside a note: nothing hidden, nothing unbounded.
//!
//! Control characters, bidirectional overrides and invisible characters can show a person one thing
//! and a model another. Secrets are not redacted here: the classifier has done so before a failure
//! carries a text.

/// Returns whether a character is invisible, or changes how others are shown.
pub(super) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{00ad}'
                | '\u{034f}'
                | '\u{061c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns the text in one line without hidden characters, at most `max_bytes` bytes of it.
pub(super) fn one_line(text: &str, max_bytes: usize) -> String {
    let shown: String = text
        .chars()
        .map(|character| {
            if character.is_whitespace() {
                ' '
            } else {
                character
            }
        })
        .filter(|character| !is_hidden(*character))
        // Four times the bound is more than enough to fill it, and bounds the work on an endless
        // text.
        .take(max_bytes.saturating_mul(4).saturating_add(1))
        .collect();
    let words: Vec<&str> = shown.split(' ').filter(|word| !word.is_empty()).collect();
    let mut line = words.join(" ");
    line.truncate(line.floor_char_boundary(max_bytes));
    line
}

/// Returns the text in at most `max_chars` characters, its end marked if it was cut.
pub(super) fn cut(text: &str, max_chars: usize) -> String {
    if text.chars().count() <= max_chars {
        return text.to_owned();
    }
    let mut kept: String = text.chars().take(max_chars.saturating_sub(1)).collect();
    if max_chars > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_dropped_and_lines_become_one() {
        let text = "a\u{202e}b\u{0000}c\r\n\td\u{200b}\u{e0041}e\u{1b}[31m";
        assert_eq!(one_line(text, 100), "abc de[31m");
    }

    #[test]
    fn a_line_ends_on_a_character_boundary_within_its_bytes() {
        assert_eq!(one_line("ééé", 5), "éé");
        assert_eq!(one_line("ééé", 0), "");
    }

    #[test]
    fn a_cut_text_is_never_longer_than_its_bound() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(cut("abcd", 0), "");
    }
}
