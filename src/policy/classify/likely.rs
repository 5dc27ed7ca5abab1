//! The likely class of a text by all of its words, where no fact is named exactly.
//!
//! Rules name facts, and nobody has words for every fact. What they leave open, and what they read from a phrase, is weighed:
//! a linear model (multinomial logistic regression) over words and pairs of words, the status and the surface, learned from
//! labelled failures (`examples/likely.py`). Its weights are data: `likely.tsv` names each feature and what it speaks for.
//! It overrules a judgement only where another class is far likelier; how far, the table says whose rule it is.
//!
//! Never overrules a documented code or another fact that is named exactly, a telling status or one without words, a typed
//! fault of this service's own client, or a rule of the configuration.

use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap, sync::LazyLock};

use serde::{
    Deserialize,
    de::value::{Error as ValueError, StrDeserializer},
};

use super::{
    FACT_BYTES, Judgement,
    engine::{Set, Table, key_of_two},
    evidence::Evidence,
    reading::{Reading, mark},
};
use crate::domain::failure::{FailureClass, InvalidRequestDetail, ProviderError, Surface};

/// Words that are looked at, of the beginning and of the end.
const FIRST_WORDS: usize = 64;
const LAST_WORDS: usize = 32;
/// Words of a text that is longer than nearly all that the weights were learned from.
const LONG: usize = 120;
/// Classes that there are weights for, and what may be wrong with an invalid request.
const CLASSES: usize = 17;
const DETAILS: usize = 5;
/// Places for words and for pairs of words, half of which may be taken (powers of two).
const WORDS: usize = 8192;
const PAIRS: usize = 32768;
/// Weights are whole numbers of so many parts.
const PARTS: f64 = 16.0;
/// How likely a class has to be at least to overrule another.
const LIKELY: f64 = 0.3;
/// Letters of the shortest feature that is told.
const TELLING: usize = 4;
/// Features that are told of a judgement.
const TOLD: usize = 3;

/// The weights, read once in a process and shared by every classifier.
pub(super) static MODEL: LazyLock<Model> = LazyLock::new(|| Model::read(include_str!("likely.tsv")));

/// What speaks for each class, and then for each detail.
type Weights = [i16; CLASSES + DETAILS];

/// What words speak for.
#[derive(Debug, Default)]
pub(super) struct Model {
    classes: Vec<FailureClass>,
    details: Vec<InvalidRequestDetail>,
    /// What speaks for each before a word is read.
    before: Weights,
    /// From words to their numbers, from one on, those of which only pairs are features, too.
    words: Table<WORDS>,
    /// From the numbers of two words that stand together to the number of their pair.
    pairs: Table<PAIRS>,
    /// By number; words and pairs are numbered together.
    features: Vec<Feature>,
}

/// A word, or two that stand together.
#[derive(Debug, Default)]
struct Feature {
    name: &'static str,
    weights: Weights,
}

/// The features of a text, each once; the room is kept from text to text.
#[derive(Debug, Default)]
pub(super) struct Found {
    seen: Set,
    list: Vec<u16>,
}

/// Whether a text is longer than nearly all that the weights were learned from; what a rule says of it stands.
pub(super) fn is_long(reading: &Reading) -> bool {
    reading.text.words().len() > LONG
}

/// The likeliest of some scores.
fn best(scores: &[i16]) -> Option<usize> {
    (0..scores.len()).max_by_key(|at| scores[*at])
}

/// The likeliest of some scores, if it is so many times as likely (a power of e) as the one that is held.
fn likelier(scores: &[i16], held: usize, margin: f64) -> Option<usize> {
    let best = best(scores)?;
    let above = |at: usize| (f64::from(scores[at]) - f64::from(scores[best])) / PARTS;
    // What is a thousand times less likely counts for nothing.
    let all = || (0..scores.len()).map(above).filter(|above| *above > -7.0).map(f64::exp).sum::<f64>();
    let far = above(held) <= -margin && 1.0 / all() >= LIKELY;
    far.then_some(best)
}

/// The words that a verdict weighs, as [`Model::weigh`] tells them apart: what a model learns from.
pub(super) fn words(error: &ProviderError, reading: &Reading, evidence: &Evidence) -> Vec<String> {
    let text = String::from_utf8_lossy(&reading.text);
    let pieces: Vec<_> = pieces(&text).collect();
    let mut words: Vec<_> = ends(&pieces).map(|piece| (*piece).to_owned()).collect();
    words.extend(circumstances(error, evidence).map(Cow::into_owned));
    words
}

/// The words of a text, and the letters of scripts that have no spaces.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_ascii_whitespace().flat_map(pieces_of_word)
}

/// The first and the last of some words: a cause stands at the head of a text or at its end.
fn ends<T>(words: &[T]) -> impl Iterator<Item = &T> {
    let whole = words.len() <= FIRST_WORDS + LAST_WORDS;
    let (first, last) = if whole { (words.len(), words.len()) } else { (FIRST_WORDS, words.len() - LAST_WORDS) };
    words[..first].iter().chain(&words[last..])
}

/// A word, or its letters where a script has no spaces.
fn pieces_of_word(word: &str) -> impl Iterator<Item = &str> {
    let letters = word.chars().any(|letter| letter >= '\u{2e80}');
    let whole = (!letters).then_some(word);
    let each = word.char_indices().filter(move |_| letters).map(|(at, letter)| &word[at..at + letter.len_utf8()]);
    whole.into_iter().chain(each)
}

/// The status and the surface, in words that no text has.
fn circumstances(error: &ProviderError, evidence: &Evidence) -> [Cow<'static, str>; 2] {
    static STATUSES: LazyLock<Vec<String>> = LazyLock::new(|| (0..600).map(|status| format!("@{status}")).collect());
    let status = evidence.status().unwrap_or_default();
    let of_status =
        STATUSES.get(usize::from(status)).map_or_else(|| format!("@{status}").into(), |word| word.as_str().into());
    let of_surface = match error.surface {
        Surface::Http => "@http",
        Surface::Transport => "@transport",
        Surface::Stream => "@stream",
        Surface::Grpc => "@grpc",
        Surface::Tool => "@tool",
    };
    [of_status, of_surface.into()]
}

/// What has a name in this project's data.
fn named<'t, T: Deserialize<'t>>(name: &'t str) -> Option<T> {
    T::deserialize(StrDeserializer::<ValueError>::new(name)).ok()
}

// === impl Found ===

impl Found {
    /// Adds a word, and its pair with the word before; says its number.
    #[inline]
    fn add(&mut self, model: &Model, before: u16, mark: u64) -> u16 {
        let word = model.words.get(mark);
        if word != 0 {
            if before != 0 {
                self.insert(model.pairs.get(key_of_two(before, word)));
            }
            self.insert(word);
        }
        word
    }

    #[inline]
    fn insert(&mut self, feature: u16) {
        if feature != 0 && !self.seen.has(feature.into()) {
            self.seen.insert(feature.into());
            self.list.push(feature);
        }
    }
}

// === impl Model ===

impl Model {
    /// A judgement, or one that is so many times as likely (a power of e).
    pub(super) fn weigh(
        &self,
        judgement: Judgement,
        margin: f64,
        error: &ProviderError,
        reading: &Reading,
        evidence: &Evidence,
        found: &mut Found,
    ) -> Judgement {
        let held = self.classes.iter().position(|class| *class == judgement.class);
        let Some(held) = held.filter(|_| !reading.text.words().is_empty()) else { return judgement };
        self.find(error, reading, evidence, found);
        let scores = self.scores(found);
        let (classes, details) = scores.split_at(CLASSES);
        let other = likelier(classes, held, margin);
        let class = other.map_or(judgement.class, |class| self.classes[class]);
        // A rule's detail yields like its class; that of another class is whatever is likeliest.
        let told = judgement.detail.filter(|_| other.is_none());
        let detail = match told.and_then(|told| self.details.iter().position(|detail| *detail == told)) {
            _ if class != FailureClass::InvalidRequest => None,
            Some(told) => likelier(details, told, margin),
            None => best(details),
        };
        let (rule, fact) = match (other, detail) {
            (Some(class), _) => (Cow::Borrowed("likely.words"), self.tell("", found, class)),
            (None, Some(detail)) => (judgement.rule, self.tell(&judgement.fact, found, CLASSES + detail)),
            (None, None) => return judgement,
        };
        let detail = detail.map(|detail| self.details[detail]);
        Judgement { class, detail, retry: judgement.retry.filter(|_| other.is_none()), fallback: None, rule, fact }
    }

    /// Finds the features of a text.
    fn find(&self, error: &ProviderError, reading: &Reading, evidence: &Evidence, found: &mut Found) {
        found.seen.clear();
        found.list.clear();
        let mut before = 0;
        let mut word = |mark: u64| before = found.add(self, before, mark);
        if reading.text.is_ascii() {
            ends(reading.text.words()).for_each(|found| word(found.mark));
        } else {
            let text = String::from_utf8_lossy(&reading.text);
            ends(&pieces(&text).collect::<Vec<_>>()).for_each(|piece| word(mark(piece)));
        }
        for word in circumstances(error, evidence) {
            found.add(self, 0, mark(&word));
        }
    }

    /// Reads `class<TAB>weight` for each class and `class.detail<TAB>weight` for each detail, then `feature<TAB>number:weight …`
    /// for each feature, by the numbers of those; what cannot be read is left out, and the tests say so.
    fn read(text: &'static str) -> Self {
        let mut model = Self::default();
        // Zero is no feature.
        model.features.push(Feature::default());
        let (mut words, mut pairs) = (BTreeMap::new(), BTreeMap::new());
        for (name, rest) in text.lines().filter_map(|line| line.split_once('\t')) {
            let label = model.classes.len() + model.details.len();
            if label < model.before.len() {
                let Ok(weight) = rest.parse() else { continue };
                model.before[label] = weight;
                match name.split_once('.') {
                    None => model.classes.extend(named::<FailureClass>(name)),
                    Some((_, detail)) => model.details.extend(named::<InvalidRequestDetail>(detail)),
                }
                continue;
            }
            let mut feature = Feature { name, ..Feature::default() };
            for (label, weight) in rest.split(' ').filter_map(|pair| pair.split_once(':')) {
                let label = label.parse().ok().and_then(|label: usize| feature.weights.get_mut(label));
                if let (Some(place), Ok(weight)) = (label, weight.parse()) {
                    *place = weight;
                }
            }
            let mut number = |word| *words.entry(mark(word)).or_insert_with(|| model.add(Feature::default()));
            if let Some((one, two)) = name.split_once(' ') {
                let key = key_of_two(number(one), number(two));
                pairs.insert(key, model.add(feature));
            } else {
                let number = number(name);
                model.features[usize::from(number)] = feature;
            }
        }
        model.words = Table::new(words.into_iter());
        model.pairs = Table::new(pairs.into_iter());
        model
    }

    /// Adds a feature; says its number.
    fn add(&mut self, feature: Feature) -> u16 {
        let number = self.features.len();
        self.features.push(feature);
        u16::try_from(number).unwrap_or_default()
    }

    /// What some features speak for.
    fn scores(&self, found: &Found) -> Weights {
        let mut scores = self.before;
        for feature in found.list.iter().filter_map(|number| self.features.get(usize::from(*number))) {
            for (score, weight) in scores.iter_mut().zip(feature.weights) {
                *score = score.saturating_add(weight);
            }
        }
        scores
    }

    /// A fact, and the features that speak most for a class or a detail, as far as there is room for them; short words, of
    /// which every text has some, are not told.
    fn tell(&self, fact: &str, found: &Found, label: usize) -> String {
        let features = found.list.iter().filter_map(|number| self.features.get(usize::from(*number)));
        let features = features.filter(|feature| feature.name.len() >= TELLING && feature.weights[label] > 0);
        let rank = |feature: &Feature| (Reverse(feature.weights[label]), feature.name);
        let mut most: Vec<&Feature> = Vec::with_capacity(TOLD);
        for feature in features {
            let at = most.partition_point(|other| rank(other) <= rank(feature));
            if at < TOLD {
                most.truncate(TOLD - 1);
                most.insert(at, feature);
            }
        }
        let mut told = fact.to_owned();
        let mut between = if fact.is_empty() { "" } else { "; " };
        for Feature { name, .. } in most {
            if told.len() + between.len() + name.len() <= FACT_BYTES {
                told.extend([between, name]);
                between = ", ";
            }
        }
        if told.is_empty() { "its words".to_owned() } else { told }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::policy::classify::{Classifier, engine::MOST};

    #[test]
    fn every_line_of_the_weights_is_read() {
        let lines = include_str!("likely.tsv").lines().count();
        let named: Vec<_> = MODEL.features.iter().filter(|feature| !feature.name.is_empty()).collect();
        assert_eq!((MODEL.classes.len(), MODEL.details.len()), (CLASSES, DETAILS));
        assert_eq!(named.len(), lines - CLASSES - DETAILS);
        assert!(named.iter().all(|feature| feature.weights.iter().any(|weight| *weight != 0)));
        assert!(MODEL.features.len() <= MOST, "{}", MODEL.features.len());
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
    fn words_say_what_is_wrong_with_a_request_where_only_the_status_says_that_it_is() {
        let judge = |text: &str| {
            let error = ProviderError { status: Some(400), message: Some(text.to_owned()), ..ProviderError::default() };
            let verdict = Classifier::new().classify(&error, Timestamp::UNIX_EPOCH);
            assert_eq!((verdict.class, &*verdict.rule), (FailureClass::InvalidRequest, "status.http"));
            (verdict.detail, verdict.fallback_helps, verdict.fact)
        };
        let (detail, fallback, fact) = judge("reasoning effort none is not something that model knows");
        assert_eq!((detail, fallback), (Some(InvalidRequestDetail::UnsupportedParameter), true));
        assert!(fact.starts_with("status 400; ") && fact.contains("reasoning"), "{fact}");
        assert_eq!(judge(""), (Some(InvalidRequestDetail::Other), false, "status 400".to_owned()));
    }

    #[test]
    fn what_is_told_of_words_has_no_more_room_than_a_fact() {
        let all = (1..MODEL.features.len()).map(|number| u16::try_from(number).unwrap()).collect();
        let found = Found { list: all, ..Found::default() };
        for (label, length) in (0..CLASSES + DETAILS).flat_map(|label| [0, 60, 100, FACT_BYTES].map(|len| (label, len)))
        {
            let fact = "f".repeat(length);
            let told = MODEL.tell(&fact, &found, label);
            assert!(told.starts_with(&fact) && told.len() <= FACT_BYTES, "{told}");
            assert_eq!(told.len() > length, length < FACT_BYTES, "{told}");
        }
    }

    #[test]
    fn a_word_is_itself_and_letters_of_a_script_without_spaces_stand_alone() {
        assert_eq!(pieces("limit").collect::<Vec<_>>(), ["limit"]);
        assert_eq!(pieces("été").collect::<Vec<_>>(), ["été"]);
        assert_eq!(pieces("限流").collect::<Vec<_>>(), ["限", "流"]);
    }
}
