//! Vague words decide only where no status tells what kind of failure it is.

use super::*;

/// The file of the rules whose words say little.
const CATCH_ALL: &str = include_str!("../../../../rules/90-catch-all.yaml");

#[test]
fn every_rule_of_the_catch_all_yields_to_a_telling_status() {
    let names: HashSet<&str> = CATCH_ALL
        .lines()
        .filter_map(|line| line.strip_prefix("- rule: "))
        .collect();
    let rules = rule::embedded();
    let vague = rules.iter().filter(|rule| names.contains(&*rule.name));
    let mut kept = Vec::new();
    let mut asked = 0;
    for sample in vague
        .flat_map(samples::of)
        .filter(|sample| !sample.by_status)
    {
        for status in [401, 402, 403, 404, 405, 410, 413, 501] {
            let body = serde_json::json!({"error": {"message": sample.text}}).to_string();
            let verdict = judge(&ProviderError {
                surface: sample.surface,
                ..http(status, &body)
            });
            asked += 1;
            let retried = verdict.retryable && verdict.rule == sample.rule;
            if names.contains(&*verdict.rule) || retried {
                kept.push(format!("{status} {}: {}", verdict.rule, sample.text));
            }
        }
    }
    assert!(asked > 1000, "{asked}");
    assert!(kept.is_empty(), "{kept:#?}");
}
