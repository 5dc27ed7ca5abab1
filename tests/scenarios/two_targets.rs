//! Two targets, of which one is found to be of use again once the other is not.

use relight::internals::scenarios::Report;

use super::played;

/// Plays faults of two targets at a call a second, of which this share is to succeed.
fn held_by_two(main: &str, spare: &str, success: f64) -> Report {
    held_within("20s", main, spare, success)
}

/// Plays the same with callers of that patience.
fn held_within(deadline: &str, main: &str, spare: &str, success: f64) -> Report {
    let text = format!(
        "id: x\ntitle: t\nabout: a\nrate: 1\nwarm: 5s\nfault: 240s\ntail: 5s\ndeadline: {deadline}\nupstreams:\n  \
         - {{ name: main, faults: [{{ {main} }}] }}\n  - {{ name: spare, faults: [{{ {spare} }}] }}\n\
         gates: {{ success: {{ min: {success} }} }}\n"
    );
    played(&text)
}

#[test]
fn a_limit_that_ended_unseen_is_found_once_the_other_target_refuses() {
    for ends in [90, 105, 120, 135, 150, 165] {
        let main = format!("to: {ends}s, does: {{ status: {{ code: 429 }} }}");
        let [from, to] = [ends + 5, ends + 65];
        let spare = format!("from: {from}s, to: {to}s, does: {{ status: {{ code: 429 }} }}");
        let report = held_by_two(&main, &spare, 0.99);
        assert!(report.passed(), "{ends} s\n{report}");
    }
}

// Three attempts at what fails 45 times in a hundred fail 9 times in a hundred, of a quarter of the
// calls: 2.3 in a hundred of all, and 2.2 more until the first probes are through.
#[test]
fn a_target_that_often_fails_serves_those_whose_other_target_refuses() {
    for from in (60..=165).step_by(15) {
        let main = "from: 20s, share: 0.45, does: { status: { code: 503 } }";
        let to = from + 60;
        let spare = format!("from: {from}s, to: {to}s, does: {{ status: {{ code: 429 }} }}");
        let report = held_by_two(main, &spare, 0.955);
        assert!(report.passed(), "from {from} s\n{report}");
    }
}

// Three attempts, of which 45 in a hundred fail, lose nine in a hundred of the 95 calls of that time: 8.7
// of all 250, and three standard deviations of that are 8.4 more.
#[test]
fn a_target_that_often_fails_is_tried_again_before_a_long_limit_of_the_other_is_waited_for() {
    for from in (60..=135).step_by(15) {
        let to = from + 95;
        let main =
            format!("from: {from}s, to: {to}s, share: 0.45, does: {{ status: {{ code: 503 }} }}");
        let report = held_within("60s", &main, "from: 20s, to: 240s, does: until", 0.931);
        assert!(report.passed(), "from {from} s\n{report}");
    }
}
