//! Failures that were labelled before any rule was asked: how well meanings carry over to texts that
//! no rule was written for.

use super::*;

/// Texts of issue threads, documentation and sources of providers, gateways, tools and programs,
/// each with its source. Parts that were held out name the round in which they were: each was
/// scored before its misses were looked at.
const HARVESTED: &str = include_str!("../../../../tests/fixtures/classify/harvested.jsonl");

/// Failures that were labelled before the classifier was asked: half `A` was looked at; `B`, the tool errors
/// of `C`, and the sets `G` to `J` were scored first, once, by rules that had never seen them
/// (docs/proofs.md has those figures), and are development sets since.
const FRESH: &str = include_str!("../../../../tests/fixtures/classify/fresh.jsonl");

/// Returns both harvests.
fn items() -> Vec<corpus::Item> {
    let read = |lines| corpus::read(lines).unwrap();
    [read(HARVESTED), read(FRESH)].concat()
}

/// Asserts that classes and retries reach the goals, in percent.
fn assert_reaches(items: &[corpus::Item], strict: f64, lenient: f64, retry: f64) {
    let score = corpus::score(&Classifier::new(), items);
    assert!(
        score.strict.percent() >= strict
            && score.lenient.percent() >= lenient
            && score.retryable.percent() >= retry,
        "{score}\n{}",
        lines(&score.misses)
    );
    assert_eq!(score.waits.right, score.waits.total, "{score}");
}

/// Returns one line for each miss.
fn lines(misses: &[corpus::Miss]) -> String {
    let line = |miss: &corpus::Miss| {
        let corpus::Miss {
            id,
            field,
            expected,
            got,
            rule,
        } = miss;
        format!("{id} {field}: {expected} -> {got} by {rule}\n")
    };
    misses.iter().map(line).collect()
}

#[test]
fn harvested_failures_are_understood() {
    assert_reaches(&items(), 92.5, 96.5, 97.0);
}

#[test]
fn harvested_failures_of_tools_are_understood() {
    let mut items = items();
    items.retain(|item| item.surface == Surface::Tool);
    assert_reaches(&items, 90.0, 95.0, 97.0);
}

#[test]
fn every_fresh_failure_is_labelled_once_with_a_class_of_ours() {
    let items = corpus::read(FRESH).unwrap();
    let texts: HashSet<_> = items
        .iter()
        .map(|item| (&item.body, &item.message, item.status))
        .collect();
    assert_eq!(texts.len(), items.len());
    for item in &items {
        let labels = item.labels.as_ref().unwrap();
        assert_eq!(
            labels.detail.is_some(),
            labels.class == FailureClass::InvalidRequest,
            "{}",
            item.id
        );
        assert!(
            !labels
                .also_ok
                .iter()
                .flatten()
                .any(|class| *class == labels.class),
            "{}",
            item.id
        );
    }
}
