//! Rules of the configuration.

use super::{
    super::user::{HeaderMatch, UserMatch},
    *,
};

fn rule(name: &str, when: UserMatch, class: FailureClass) -> UserRule {
    UserRule {
        name: name.to_owned(),
        when,
        class,
        ..UserRule::default()
    }
}

#[test]
fn a_rule_of_the_configuration_precedes_the_tables() {
    let when = UserMatch {
        status: Some(429),
        message: Some("house limit".to_owned()),
        ..UserMatch::default()
    };
    let wanted = UserRule {
        retryable: Some(false),
        retry_after: Some(Duration::from_secs(90)),
        ..rule("house", when, FailureClass::Overloaded)
    };
    let classifier = Classifier::with_rules(&[wanted]).unwrap();
    let verdict = classifier.classify(&http(429, "Rate limit: HOUSE LIMIT"), Timestamp::UNIX_EPOCH);
    assert_eq!(
        (verdict.class, verdict.retryable, &*verdict.rule),
        (FailureClass::Overloaded, false, "user:house")
    );
    assert_eq!(
        verdict.retry_after.map(|wait| wait.duration),
        Some(Duration::from_secs(90))
    );
    let other = classifier.classify(&http(429, "Rate limit exceeded"), Timestamp::UNIX_EPOCH);
    assert_eq!(other.class, FailureClass::RateLimited);
}

#[test]
fn each_condition_is_matched_on_its_own_field() {
    let error = ProviderError {
        provider: "acme".into(),
        headers: vec![("x-reason".to_owned(), "Night shift".to_owned())],
        ..http(
            418,
            r#"{"error":{"code":"ACME_Sleeping","type":"nap_error","message":"zzz"}}"#,
        )
    };
    let text = |text: &str| Some(text.to_owned());
    let holds = |when: UserMatch| {
        let classifier =
            Classifier::with_rules(&[rule("nap", when, FailureClass::Overloaded)]).unwrap();
        classifier.classify(&error, Timestamp::UNIX_EPOCH).class == FailureClass::Overloaded
    };
    assert!(holds(UserMatch {
        provider: text("Acme"),
        ..UserMatch::default()
    }));
    assert!(holds(UserMatch {
        status: Some(418),
        ..UserMatch::default()
    }));
    assert!(holds(UserMatch {
        code: text("acme_sleeping"),
        ..UserMatch::default()
    }));
    assert!(holds(UserMatch {
        r#type: text("nap_error"),
        ..UserMatch::default()
    }));
    let header = |value| {
        Some(HeaderMatch {
            name: "X-Reason".to_owned(),
            value,
        })
    };
    assert!(holds(UserMatch {
        header: header(None),
        ..UserMatch::default()
    }));
    assert!(holds(UserMatch {
        header: header(text("^night")),
        ..UserMatch::default()
    }));
    assert!(!holds(UserMatch {
        header: header(text("^day")),
        ..UserMatch::default()
    }));
    assert!(!holds(UserMatch {
        code: text("sleeping"),
        ..UserMatch::default()
    }));
    assert!(!holds(UserMatch {
        provider: text("acme"),
        status: Some(500),
        ..UserMatch::default()
    }));
}

#[test]
fn all_faults_of_all_rules_are_named_at_once() {
    let rules = [
        rule("", UserMatch::default(), FailureClass::Overloaded),
        rule(
            "a",
            UserMatch {
                message: Some("(".to_owned()),
                ..UserMatch::default()
            },
            FailureClass::Shed,
        ),
        rule(
            "a",
            UserMatch {
                status: Some(42),
                ..UserMatch::default()
            },
            FailureClass::Timeout,
        ),
    ];
    let faults = Classifier::with_rules(&rules).unwrap_err();
    let named: Vec<_> = faults
        .iter()
        .map(|fault| (fault.index, fault.field))
        .collect();
    assert_eq!(
        named,
        [
            (0, "name"),
            (0, "when"),
            (1, "class"),
            (1, "when.message"),
            (2, "name"),
            (2, "when.status")
        ]
    );
}

#[test]
fn a_rule_is_read_from_configuration_with_units_and_refuses_unknown_fields() {
    let rule: UserRule = serde_json::from_str(
        r#"{"name":"x","when":{"type":"t"},"class":"rate_limited","retry_after":"1m30s","retryable":true}"#,
    )
    .unwrap();
    assert_eq!(
        (rule.class, rule.retry_after),
        (FailureClass::RateLimited, Some(Duration::from_secs(90)))
    );
    assert!(serde_json::from_str::<UserRule>(r#"{"nane":"x"}"#).is_err());
    assert!(serde_json::from_str::<UserRule>(r#"{"retry_after":"90"}"#).is_err());
}
