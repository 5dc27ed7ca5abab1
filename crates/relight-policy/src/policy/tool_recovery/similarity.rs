//! How alike two names or descriptions are: it ranks what may be meant, and decides nothing alone.

use std::collections::BTreeSet;

/// Words of tool names that do not name what the tool is about.
const EMPTY: [&str; 22] = [
    "get", "list", "fetch", "find", "search", "read", "show", "query", "lookup", "retrieve",
    "create", "update", "delete", "add", "set", "my", "all", "by", "the", "of", "for", "tool",
];

/// Words of a text, in lower case, each in its singular: `getActivities` and `get_activity` hold
/// the same.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for letter in text.chars().take(2_000) {
        let begins = letter.is_uppercase() && before.is_lowercase();
        if (begins || !letter.is_alphanumeric()) && !word.is_empty() {
            words.push(singular(std::mem::take(&mut word)));
        }
        if letter.is_alphanumeric() {
            word.extend(letter.to_lowercase());
        }
        before = letter;
    }
    if !word.is_empty() {
        words.push(singular(word));
    }
    words
}

/// Returns the similarity of two names, from 0 to 1: by their words or by their letters, whichever
/// is more.
#[must_use]
pub fn of_names(left: &str, right: &str) -> f64 {
    let by_words = of_texts(left, right);
    let joined = |name: &str| words(name).concat();
    let by_letters = dice(&pairs(&joined(left)), &pairs(&joined(right)));
    by_words.max(by_letters)
}

/// Returns the share of words that two texts have in common, from 0 to 1.
#[must_use]
pub fn of_texts(left: &str, right: &str) -> f64 {
    let set = |text: &str| words(text).into_iter().collect::<BTreeSet<_>>();
    dice(&set(left), &set(right))
}

/// Returns whether two tools are about the same thing, by the words of their names that name it.
#[must_use]
pub fn same_subject(left: &str, right: &str) -> bool {
    let subject = |name: &str| {
        let words = words(name)
            .into_iter()
            .filter(|word| !EMPTY.contains(&word.as_str()));
        words.collect::<BTreeSet<_>>()
    };
    !subject(left).is_disjoint(&subject(right))
}

fn singular(mut word: String) -> String {
    if word.len() > 4 && word.ends_with("ies") {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if word.len() > 2
        && word.ends_with('s')
        && !word.ends_with("ss")
        && !word.ends_with("us")
    {
        word.pop();
    }
    word
}

fn pairs(text: &str) -> BTreeSet<(char, char)> {
    text.chars().zip(text.chars().skip(1)).collect()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sets of at most some thousand words"
)]
fn dice<T: Ord>(left: &BTreeSet<T>, right: &BTreeSet<T>) -> f64 {
    let all = left.len() + right.len();
    if all == 0 {
        0.0
    } else {
        2.0 * left.intersection(right).count() as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_number_or_spelling_hold_the_same_words() {
        assert_eq!(words("getActivities"), ["get", "activity"]);
        assert_eq!(
            words("strava_get_my_activity-tool"),
            ["strava", "get", "my", "activity", "tool"]
        );
        assert!((of_names("get_activities", "getActivity") - 1.0).abs() < f64::EPSILON);
        assert!(of_names("get_activities", "delete_user") < 0.4);
        assert!((of_names("", "") - 0.0).abs() < f64::EPSILON);
    }

    #[test]
    fn tools_are_about_the_same_where_more_than_their_verbs_agree() {
        assert!(same_subject("get_activities", "get_activity"));
        assert!(!same_subject("get_activities", "get_users"));
        assert!(!same_subject("get", "get"));
    }
}
