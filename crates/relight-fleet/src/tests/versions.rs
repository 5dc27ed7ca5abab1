//! Versions side by side, as in a rolling update: each reads what the other writes.

use super::*;
use crate::{
    core::{FleetCore, StepInput},
    fact::ReplicaFact,
    store::StoredRecord,
};

/// Records of 0.2.0, a fact of each kind. A line is added if a later version writes another text,
/// and no line is removed while that version may run beside the one that is to be.
const WRITTEN: [&str; 5] = [
    r#"{"kind":"member","id":"a-1","name":"relight-0","version":"0.2.0","address":"http://10.0.0.1:50051","journal":"9f"}"#,
    r#"{"kind":"gate","episode":3,"closing":{"class":"authentication","status":401,"by_headers":false,"closed_ms":120,"took_ms":20,"ends_ms":null,"tenants":[{"tenant":"acme","probe_ms":900}]},"own":true}"#,
    r#"{"kind":"gate","episode":3,"closing":null,"own":false}"#,
    r#"{"kind":"circuit","episode":2,"phase":"open","retry_ms":800,"own":true,"window":{"calls":5,"committed":5,"failures":5,"answered_ms":null,"run_ms":[400,300,200,100,50]}}"#,
    r#"{"kind":"word","id":"w-1","epoch":4,"order":{"force":"open"},"operator":"ada","reason":"maintenance at noon"}"#,
];

#[test]
fn what_the_version_before_writes_is_read_and_this_one_writes_what_that_one_reads() {
    for text in WRITTEN {
        let fact = ReplicaFact::parse(text).unwrap_or_else(|| panic!("it is not read: {text}"));
        assert_eq!(fact.text(), text);
    }
}

#[test]
fn what_a_later_version_adds_is_passed_over_and_all_else_is_read() {
    for text in WRITTEN {
        let known = ReplicaFact::parse(text);
        let more = text.replacen('{', r#"{"since_a_later_version":{"depth":[1]},"#, 1);
        assert_eq!(ReplicaFact::parse(&more), known, "{more}");
    }
    for unknown in [
        r#"{"kind":"weather","is":"fine"}"#,
        r#"{"kind":"circuit","episode":2,"phase":"ajar","window":{}}"#,
        "",
    ] {
        assert_eq!(ReplicaFact::parse(unknown), None, "{unknown}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_this_version_does_not_know_hides_no_other_and_is_left_alone() {
    let mut core = FleetCore::new(FleetMember {
        id: "b-2".to_owned(),
        ..FleetMember::default()
    });
    let record = |subject: &str, owner: &str, value: &str| StoredRecord {
        subject: subject.to_owned(),
        owner: owner.to_owned(),
        epoch: 1,
        value: value.to_owned(),
        age: Duration::ZERO,
    };
    core.step(
        StepInput::Snapshot(vec![record("word:later", "", WRITTEN[4])]),
        Instant::now(),
    );
    let records = vec![
        record("weather", "a-1", r#"{"kind":"weather","is":"fine"}"#),
        // In the place of a word that was known here.
        record("word:later", "", r#"{"kind":"word","order":"dance"}"#),
        record("member", "a-1", WRITTEN[0]),
        record("word:target", "", WRITTEN[4]),
    ];
    let outcome = core.step(StepInput::Snapshot(records), Instant::now());
    assert_eq!(core.live().count(), 2);
    assert!(
        matches!(&*outcome.effects, [FleetEffect::Operate(..)]),
        "{:?}",
        outcome.effects
    );
    assert_eq!(outcome.writes, []);
}
