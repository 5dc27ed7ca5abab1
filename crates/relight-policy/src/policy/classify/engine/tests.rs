//! The engine against a reader that checks every position of a text, one after the other.

use proptest::{collection::vec, prelude::*, sample::select};

use super::*;
use crate::{domain::failure::FailureClass, policy::phrase::NEAR};

/// Returns a rule of some phrases.
fn rule(name: usize, phrases: &[String]) -> Rule {
    Rule {
        name: name.to_string(),
        class: FailureClass::Timeout,
        detail: None,
        retry: None,
        fallback: None,
        yields_to_status: None,
        class_if_refused: None,
        class_if_unsent: None,
        any: phrases.to_vec(),
    }
}

/// Returns the index of the rule that is found in a text, and the matched words with their
/// position.
fn find(engine: &RuleEngine, text: &str) -> Option<(usize, String, usize)> {
    let mut reading = NormalizedText::default();
    reading.add(text);
    let scene = RuleContext {
        provider: "",
        surface: Surface::Http,
        status: None,
        codes: &[],
    };
    let Found {
        rule,
        span: (from, to),
    } = engine.find(&reading, &scene)?;
    Some((
        rule.name.parse().unwrap(),
        reading.text[from..to].to_owned(),
        from,
    ))
}

/// A part of a phrase: words of which any will do; the last of each may be an open stem.
type PhrasePart = Vec<(Vec<&'static str>, bool)>;

/// Words, of which some begin with others, and one that fills a gap quickly.
const WORDS: [&str; 6] = [
    "one",
    "two",
    "ten",
    "onetwo",
    "tenth",
    "abcdefghijklmnopqrstuvwxyzabcdefghij",
];

fn part() -> impl Strategy<Value = PhrasePart> {
    vec((vec(select(&WORDS[..5]), 1..3), any::<bool>()), 1..3)
}

/// Returns a phrase as tables write it.
fn written(parts: &[PhrasePart]) -> String {
    let spelling = |(words, open): &(Vec<&str>, bool)| {
        format!("{}{}", words.join(" "), if *open { "*" } else { "" })
    };
    let part = |part: &PhrasePart| {
        format!(
            "{{{}}}",
            part.iter().map(spelling).collect::<Vec<_>>().join("|")
        )
    };
    parts.iter().map(part).collect::<Vec<_>>().join(" .. ")
}

/// Where a part occurs in a text of words between single spaces.
fn places(text: &str, part: &PhrasePart) -> Vec<(usize, usize)> {
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

/// Where a phrase that occurs in a text begins: each part behind the one before and near to it, the
/// earliest ending first.
fn begin(text: &str, parts: &[PhrasePart]) -> Option<usize> {
    let (first, others) = parts.split_first()?;
    let occurs = |(_, end): &(usize, usize)| {
        let next = |end: usize, part: &PhrasePart| {
            let near = places(text, part)
                .into_iter()
                .filter(|(start, _)| (end..=end + NEAR).contains(start));
            near.map(|place| place.1).min()
        };
        others.iter().try_fold(*end, next).is_some()
    };
    places(text, first)
        .into_iter()
        .filter(occurs)
        .map(|place| place.0)
        .min()
}

#[test]
fn phrases_of_scripts_without_spaces_are_found_at_each_of_their_places() {
    let phrases: [&[&str]; 3] = [&["额度 .. 用尽"], &["请求 .. 频繁", "api 余额"], &["余额"]];
    let owned = |phrases: &[&str]| {
        phrases
            .iter()
            .map(|phrase| (*phrase).to_owned())
            .collect::<Vec<_>>()
    };
    let rules = phrases
        .iter()
        .enumerate()
        .map(|(at, phrases)| rule(at, &owned(phrases)));
    let engine = RuleEngine::new(rules.collect());
    let far = "额度".to_owned() + &"的".repeat(NEAR) + "额度已用尽";
    for (text, expected) in [
        ("您的请求过于频繁，请稍后再试", Some((1, "请求过于频繁"))),
        (&*far, Some((0, "额度已用尽"))),
        ("余额不足", Some((2, "余额"))),
        ("您的余额和额度", Some((2, "余额"))),
        ("the api余额 of it", Some((1, "api 余额"))),
        ("频繁的请求", None),
        ("用尽", None),
    ] {
        let found = find(&engine, text).map(|(rule, words, _)| (rule, words));
        assert_eq!(
            found,
            expected.map(|(rule, span)| (rule, span.to_owned())),
            "{text}"
        );
    }
}

proptest! {
    #[test]
    fn the_first_rule_with_a_phrase_in_a_text_is_found_at_its_position(
        phrases in vec(vec(part(), 1..4), 1..5),
        words in vec(select(&WORDS[..]), 0..50),
    ) {
        let rules: Vec<_> = phrases.iter().enumerate().map(|(at, parts)| rule(at, &[written(parts)])).collect();
        let text = format!(" {} ", words.join(" "));
        let expected =
            phrases.iter().enumerate().find_map(|(rule, parts)| Some((rule, begin(&text, parts)?)));
        let found = find(&RuleEngine::new(rules.clone()), text.trim()).map(|(rule, _, at)| (rule, at));
        prop_assert_eq!(found, expected, "{:?} in {}", rules, text);
    }
}
