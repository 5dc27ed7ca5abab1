//! The engine against a reader that goes through every place of a text, one after the other.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::{
    domain::failure::FailureClass,
    policy::classify::rule::{NEAR, rule},
};

/// A part of a phrase: words of which any will do; the last of each may be open.
type Part = Vec<(Vec<&'static str>, bool)>;

/// Words, of which some begin with others, and one that fills a gap quickly.
const WORDS: [&str; 6] = ["one", "two", "ten", "onetwo", "tenth", "abcdefghijklmnopqrstuvwxyzabcdefghij"];

fn part() -> impl Strategy<Value = Part> {
    vec((vec(select(&WORDS[..5]), 1..3), any::<bool>()), 1..3)
}

/// A phrase as tables write it.
fn written(parts: &[Part]) -> String {
    let spelling = |(words, open): &(Vec<&str>, bool)| format!("{}{}", words.join(" "), if *open { "*" } else { "" });
    let part = |part: &Part| format!("{{{}}}", part.iter().map(spelling).collect::<Vec<_>>().join("|"));
    parts.iter().map(part).collect::<Vec<_>>().join(" .. ")
}

/// Where a part stands in a text of words between single spaces.
fn places(text: &str, part: &Part) -> Vec<(usize, usize)> {
    let mut places = Vec::new();
    for (words, open) in part {
        let words = format!(" {}", words.join(" "));
        for at in (0..text.len()).filter(|at| text[*at..].starts_with(&words)) {
            let end = at + words.len();
            if *open || text[end..].starts_with(' ') {
                places.push((at + 1, end));
            }
        }
    }
    places
}

/// Where a phrase begins that stands in a text: each part behind the one before and near to it, the one that ends first.
fn begin(text: &str, parts: &[Part]) -> Option<usize> {
    let (first, others) = parts.split_first()?;
    let stands = |(_, end): &(usize, usize)| {
        let next = |end: usize, part: &Part| {
            let near = places(text, part).into_iter().filter(|(start, _)| (end..=end + NEAR).contains(start));
            near.map(|place| place.1).min()
        };
        others.iter().try_fold(*end, next).is_some()
    };
    places(text, first).into_iter().filter(stands).map(|place| place.0).min()
}

proptest! {
    #[test]
    fn the_first_rule_of_which_a_phrase_stands_in_a_text_is_found_where_it_stands(
        phrases in vec(vec(part(), 1..4), 1..5),
        words in vec(select(&WORDS[..]), 0..50),
    ) {
        let rules: Vec<_> = phrases.iter().map(|parts| {
            let phrase: &'static str = written(parts).leak();
            rule("a.rule", FailureClass::Timeout, vec![phrase].leak())
        }).collect();
        let text = format!(" {} ", words.join(" "));
        let expected =
            phrases.iter().enumerate().find_map(|(rule, parts)| Some((rule, begin(&text, parts)?)));
        let mut reading = Reading::default();
        reading.add(text.trim());
        let scene = Scene { provider: "", surface: Surface::Http, status: None, codes: &[] };
        let found = Engine::new(rules.iter()).find(&reading, &scene, &mut Hits::default());
        prop_assert_eq!(found.map(|found| (found.rule, found.span.0)), expected, "{:?} in {}", rules, text);
    }
}
