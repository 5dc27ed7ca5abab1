//! A judge that sees each fault, and no fault in what is whole.

use super::*;
use crate::cases;

fn case(id: &str) -> Case {
    cases::all()
        .unwrap()
        .into_iter()
        .find(|case| case.id == id)
        .unwrap()
}

fn held(text: &str, finish: Option<&str>, error: Option<&str>) -> HeldByCaller {
    HeldByCaller {
        status: 200,
        text: text.to_owned(),
        finish: finish.map(str::to_owned),
        error: error.map(str::to_owned),
        ..HeldByCaller::default()
    }
}

fn fault_of(case: &Case, held: &HeldByCaller) -> String {
    match CaseJudgement::of(case, held) {
        CaseJudgement::Unsound(why) => why,
        other => format!("{other:?}"),
    }
}

#[test]
fn every_beginning_of_an_answer_is_unsound_without_an_error_and_sound_with_one() {
    let whole = text();
    let cut = case("stream, cut in the middle");
    for (end, _) in whole.char_indices() {
        let part = &whole[..end];
        assert!(fault_of(&cut, &held(part, Some("stop"), None)).contains("cut answer"));
        let part_with_error = CaseJudgement::of(&cut, &held(part, None, Some("cut")));
        assert_eq!(part_with_error, CaseJudgement::GaveUp);
    }
    assert_eq!(
        CaseJudgement::of(&cut, &held(&whole, Some("stop"), None)),
        CaseJudgement::Whole
    );
}

#[test]
fn every_duplicate_loss_and_seam_is_seen_with_an_error_and_without() {
    let whole = text();
    let cut = case("stream, cut in the middle");
    let words: Vec<&str> = whole.split_inclusive(' ').collect();
    for at in 1..words.len() - 1 {
        let (before, after) = words.split_at(at);
        let twice = [before, &words[at - 1..]].concat().concat();
        let gap = [before, &after[1..]].concat().concat();
        let seam = format!("{}{}", before.concat(), other_text());
        for error in [None, Some("cut")] {
            assert!(fault_of(&cut, &held(&twice, Some("stop"), error)).contains("duplicate"));
            assert!(fault_of(&cut, &held(&gap, Some("stop"), error)).contains("loss"));
            assert!(fault_of(&cut, &held(&seam, Some("stop"), error)).contains("two answers"));
        }
    }
}

#[test]
fn half_a_tool_call_is_unsound_unless_an_error_follows() {
    let id = "stream, tool call cut in its arguments";
    let mut part = held("", Some("tool_calls"), None);
    part.tools
        .insert(0, (TOOL.to_owned(), ARGUMENTS[..9].to_owned()));
    assert!(fault_of(&case(id), &part).contains("half a tool call"));
    part.error = Some("cut".to_owned());
    assert_eq!(CaseJudgement::of(&case(id), &part), CaseJudgement::GaveUp);
}

#[test]
fn a_lost_finish_reason_and_a_second_payment_are_seen() {
    let whole = text();
    assert!(
        fault_of(&case("stream, whole"), &held(&whole, None, None)).contains("no finish reason")
    );
    assert!(
        fault_of(&case("stream, whole"), &held(&whole, Some("length"), None))
            .contains("`length` in place of `stop`")
    );
    let mut paid = held(&whole, Some("stop"), None);
    paid.record.attempts = 2;
    assert!(fault_of(&case("stream, whole"), &paid).contains("second payment"));
}

#[test]
fn every_case_has_a_name_of_its_own_and_a_paragraph() {
    let cases = cases::all().unwrap();
    let names: BTreeSet<&str> = cases.iter().map(|case| case.id.as_str()).collect();
    assert_eq!(names.len(), cases.len());
    assert!(cases.len() >= 60, "{}", cases.len());
    for case in &cases {
        assert!(
            case.why.len() > 60 && case.why.trim_end().ends_with('.'),
            "{}",
            case.id
        );
    }
}
