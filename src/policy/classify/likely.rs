//! The likely class of a text by all of its words, where nothing or only a loose phrase decides.
//!
//! Rules name facts, and nobody has words for every fact. What they leave open, or read from one loose phrase, is weighed:
//! a linear model (multinomial logistic regression) over words and pairs of words, the status and the surface, learned from
//! labelled failures (`examples/likely.py`). Its weights are data: `likely.tsv` names each feature and what it speaks for.
//! It overrules a judgement only where it holds its own class for more likely than not, and far more likely than the other.
//!
//! Never overrules a documented code or another fact that is named exactly, a bare status, a typed fault of this service's own
//! client, or a rule of the configuration.

use std::{borrow::Cow, sync::LazyLock};

use serde::{
    Deserialize as _,
    de::value::{Error as ValueError, StrDeserializer},
};

use super::{
    Judgement,
    engine::{Set, Table},
    evidence::Evidence,
    reading::{Reading, mark},
};
use crate::domain::failure::{FailureClass, InvalidRequestDetail, ProviderError, Surface};

/// Words that are looked at.
const MOST_WORDS: usize = 400;
/// Classes that there are weights for.
const CLASSES: usize = 17;
/// Most features (a power of two).
const FEATURES: usize = 8192;
/// Weights are whole numbers of so many parts.
const PARTS: f64 = 16.0;
/// How many times as likely as another class one has to be to overrule it, as a power of e.
const MARGIN: f64 = 1.5;
/// How likely it has to be at least.
const LIKELY: f64 = 0.5;
/// Letters of the shortest feature that is told.
const TELLING: usize = 4;
/// Features that are told of a judgement.
const TOLD: usize = 3;

static MODEL: LazyLock<Model> = LazyLock::new(|| Model::read(include_str!("likely.tsv")));

/// What words speak for.
#[derive(Debug, Default)]
struct Model {
    classes: Vec<FailureClass>,
    /// What speaks for each class before a word is read.
    before: [i32; CLASSES],
    /// From features to their rows, from one on.
    rows: Table<{ 2 * FEATURES }>,
    names: Vec<&'static str>,
    weights: Vec<[i8; CLASSES]>,
}

/// A judgement, or a likelier one.
pub(super) fn weigh(judgement: Judgement, error: &ProviderError, reading: &Reading, evidence: &Evidence) -> Judgement {
    let Some(held) = MODEL.classes.iter().position(|class| *class == judgement.class) else { return judgement };
    let found = features(error, reading, evidence);
    let scores = MODEL.scores(&found);
    let Some(best) = (0..scores.len()).max_by_key(|class| scores[*class]) else { return judgement };
    let above = |class: usize| f64::from(scores[class] - scores[best]) / PARTS;
    let likelihood = 1.0 / (0..CLASSES).map(|class| above(class).exp()).sum::<f64>();
    if likelihood < LIKELY || above(held) > -MARGIN {
        return judgement;
    }
    let class = MODEL.classes[best];
    Judgement {
        class,
        detail: (class == FailureClass::InvalidRequest).then_some(InvalidRequestDetail::Other),
        retry: None,
        fallback: None,
        rule: Cow::Borrowed("likely.words"),
        fact: MODEL.tell(&found, best),
    }
}

/// The words that a verdict weighs, as [`weigh`] tells them apart: what a model learns from.
pub(super) fn words(error: &ProviderError, reading: &Reading, evidence: &Evidence) -> Vec<String> {
    let text = String::from_utf8_lossy(&reading.text);
    let mut words: Vec<_> = pieces(&text).map(str::to_owned).collect();
    words.extend(circumstances(error, evidence));
    words
}

/// The words of a text, and the letters of scripts that have no spaces.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace().flat_map(pieces_of_word).take(MOST_WORDS)
}

/// A word, or its letters where a script has no spaces.
fn pieces_of_word(word: &str) -> impl Iterator<Item = &str> {
    let letters = word.chars().any(|letter| letter >= '\u{2e80}');
    let whole = (!letters).then_some(word);
    let each = word.char_indices().filter(move |_| letters).map(|(at, letter)| &word[at..at + letter.len_utf8()]);
    whole.into_iter().chain(each)
}

/// The status and the surface, in words that no text has.
fn circumstances(error: &ProviderError, evidence: &Evidence) -> [String; 2] {
    let surface = match error.surface {
        Surface::Http => "@http",
        Surface::Transport => "@transport",
        Surface::Stream => "@stream",
        Surface::Grpc => "@grpc",
        Surface::Tool => "@tool",
    };
    [format!("@{}", evidence.status().unwrap_or_default()), surface.to_owned()]
}

/// The rows of the features of a text, each once.
fn features(error: &ProviderError, reading: &Reading, evidence: &Evidence) -> Vec<u16> {
    let (mut found, mut seen) = (Vec::with_capacity(MOST_WORDS), Set::default());
    let rows = &MODEL.rows;
    let mut add = |key: u64| {
        let row = rows.get(key);
        if row != 0 && !seen.has(row.into()) {
            seen.insert(row.into());
            found.push(row);
        }
    };
    let mut before = None;
    let mut word = |mark: u64| {
        if let Some(before) = before.replace(mark) {
            add(pair(before, mark));
        }
        add(mark);
    };
    if reading.text.is_ascii() {
        reading.text.words().iter().take(MOST_WORDS).for_each(|found| word(found.mark));
    } else {
        let text = String::from_utf8_lossy(&reading.text);
        pieces(&text).for_each(|piece| word(mark(piece)));
    }
    for word in circumstances(error, evidence) {
        add(mark(&word));
    }
    found
}

/// The key of two words that stand together.
fn pair(one: u64, two: u64) -> u64 {
    one.rotate_left(23).wrapping_mul(0xA24B_AED4_963E_E407) ^ two
}

// === impl Model ===

impl Model {
    /// Reads `class<TAB>weight` for each class, then `feature<TAB>class number:weight …` for each feature; what cannot be read
    /// is left out, and the tests say so.
    fn read(text: &'static str) -> Self {
        let mut model = Self::default();
        let mut keys = Vec::new();
        for (name, rest) in text.lines().filter_map(|line| line.split_once('\t')) {
            if model.classes.len() < CLASSES {
                let class = FailureClass::deserialize(StrDeserializer::<ValueError>::new(name));
                let (Ok(class), Ok(weight)) = (class, rest.parse()) else { continue };
                model.before[model.classes.len()] = weight;
                model.classes.push(class);
                continue;
            }
            let mut weights = [0; CLASSES];
            for (class, weight) in rest.split(' ').filter_map(|pair| pair.split_once(':')) {
                let class = class.parse().ok().and_then(|class: usize| weights.get_mut(class));
                if let (Some(place), Ok(weight)) = (class, weight.parse()) {
                    *place = weight;
                }
            }
            model.names.push(name);
            model.weights.push(weights);
            let key = name.split_once(' ').map_or_else(|| mark(name), |(one, two)| pair(mark(one), mark(two)));
            keys.push((key, u16::try_from(model.names.len()).unwrap_or_default()));
        }
        model.rows = Table::new(keys.into_iter());
        model
    }

    /// What some features speak for, class by class.
    fn scores(&self, found: &[u16]) -> [i32; CLASSES] {
        let mut scores = self.before;
        for row in found {
            let Some(weights) = self.weights.get(usize::from(*row) - 1) else { continue };
            for (score, weight) in scores.iter_mut().zip(weights) {
                *score += i32::from(*weight);
            }
        }
        scores
    }

    /// The features that speak most for a class; short words, of which every text has some, are not told.
    fn tell(&self, found: &[u16], class: usize) -> String {
        let rows = found.iter().map(|row| usize::from(*row) - 1);
        let mut rows: Vec<_> =
            rows.filter(|row| self.names[*row].len() >= TELLING && self.weights[*row][class] > 0).collect();
        rows.sort_by_key(|row| (std::cmp::Reverse(self.weights[*row][class]), *row));
        let names: Vec<_> = rows.iter().take(TOLD).map(|row| self.names[*row]).collect();
        if names.is_empty() { "its words".to_owned() } else { names.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::policy::classify::Classifier;

    #[test]
    fn every_line_of_the_weights_is_read() {
        let lines = include_str!("likely.tsv").lines().count();
        assert_eq!((MODEL.classes.len(), MODEL.names.len()), (CLASSES, lines - CLASSES));
        assert!(
            MODEL.names.len() < FEATURES
                && MODEL.weights.iter().all(|weights| weights.iter().any(|weight| *weight != 0))
        );
    }

    #[test]
    fn all_words_together_decide_where_no_rule_does_and_say_which() {
        let judge = |text: &str| {
            let error = ProviderError { message: Some(text.to_owned()), ..ProviderError::default() };
            Classifier::new().classify(&error, Timestamp::UNIX_EPOCH)
        };
        let verdict = judge("the request took far too long and was dropped");
        assert_eq!((verdict.class, &*verdict.rule), (FailureClass::Timeout, "likely.words"));
        assert!(verdict.fact.contains("long"), "{}", verdict.fact);
        // Words that nobody knows say nothing, and a documented code stands whatever stands around it.
        assert_eq!(judge("quux frobnicated the wibble").class, FailureClass::Unknown);
        let around = "insufficient_quota: the request took far too long and was dropped";
        assert_eq!(judge(around).class, FailureClass::QuotaExceeded);
    }

    #[test]
    fn a_word_is_itself_and_letters_of_a_script_without_spaces_stand_alone() {
        assert_eq!(pieces("limit").collect::<Vec<_>>(), ["limit"]);
        assert_eq!(pieces("été").collect::<Vec<_>>(), ["été"]);
        assert_eq!(pieces("限流").collect::<Vec<_>>(), ["限", "流"]);
    }
}
