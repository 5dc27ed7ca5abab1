//! What a policy may contain.

use super::super::{ErrorWords, InjectionPolicy};
use crate::domain::failure::FailureClass;

fn paths(policy: &InjectionPolicy) -> Vec<String> {
    policy
        .validate()
        .into_iter()
        .map(|(path, _)| path)
        .collect()
}

#[test]
fn the_default_policy_is_good() {
    assert_eq!(InjectionPolicy::default().validate(), []);
}

#[test]
fn every_fault_is_reported_with_its_path() {
    let mut policy = InjectionPolicy {
        template: "no place".into(),
        short_template: "{error} and {detail}".into(),
        short_for: vec!["planner".into(), " ".into()],
        ..InjectionPolicy::default()
    };
    policy.templates.insert("time_out".into(), "{error}".into());
    policy
        .templates
        .insert("content_filtered".into(), "{error}".into());
    policy
        .templates
        .insert("timeout".into(), "hidden\u{202e} {error}".into());
    policy
        .templates
        .insert("crash".into(), format!("{}{{error}}", "x".repeat(390)));
    assert_eq!(
        paths(&policy),
        [
            "template",
            "short_template",
            "templates.content_filtered",
            "templates.crash",
            "templates.time_out",
            "templates.timeout",
            "short_for[1]",
        ]
    );
}

#[test]
fn a_template_for_any_class_that_a_note_may_cover_is_valid() {
    for class in [
        FailureClass::Timeout,
        FailureClass::RateLimited,
        FailureClass::Unknown,
    ] {
        let mut policy = InjectionPolicy::default();
        policy
            .templates
            .insert(class.as_str().to_owned(), "It failed: {error}.".into());
        assert_eq!(policy.validate(), [], "{class}");
    }
}

#[test]
fn a_policy_reads_its_own_words_and_refuses_others() {
    let policy: InjectionPolicy =
        serde_json::from_str("{\"mode\":\"always\",\"error\":\"message\"}").unwrap();
    assert_eq!(policy.error, ErrorWords::Message);
    assert_eq!(policy.template, InjectionPolicy::default().template);
    assert!(serde_json::from_str::<InjectionPolicy>("{\"tempalte\":\"{error}\"}").is_err());
}
