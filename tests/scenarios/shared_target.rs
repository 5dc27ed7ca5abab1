//! A target that many callers share: what some of them meet there changes nothing for the others.

use relight::internals::scenarios::{self, Scenario};

use super::{ALONE, played};

// So many calls are in flight when the first of them is refused that their number could be the reason;
// none of them passes.
#[test]
fn a_limit_that_many_calls_meet_at_once_leaves_nothing_behind() {
    for (after, rate) in [("20ms", 400), ("200ms", 150), ("1s", 60)] {
        let text = format!(
            "id: x\ntitle: t\nabout: a\nrate: {rate}\nwarm: 0s\nfault: 12s\ntail: 0s\ndeadline: 30s\nupstreams:\n  \
             - {{ name: main, faults: [{{ to: 1500ms, does: {{ status: {{ code: 429, after: {after} }} }} }}] }}\n\
             gates: {{ success: {{ min: 0.99 }} }}\n"
        );
        let report = played(&text);
        assert!(report.passed(), "{after}\n{report}{:?}", report.ours);
    }
}

// A second for which nobody calls is a second of the limit that is lost, and so little is left over.
#[test]
fn calls_just_below_a_limit_that_refills_all_the_time_hardly_wait() {
    for (rate, limit, burst) in [(40, 45, 5), (80, 90, 10), (20, 23, 5)] {
        let text = format!(
            "id: x\ntitle: t\nabout: a\nrate: {rate}\nfault: 45s\ndeadline: 30s\nupstreams:\n  \
             - {{ name: main, faults: [{{ does: {{ limit: {{ per_second: {limit}, burst: {burst}, min: 1s, max: 1s }} }} }}] }}\n\
             gates: {{ success: {{ min: 0.99 }}, added_p50: {{ max: 0.5 }} }}\n"
        );
        let report = played(&text);
        assert!(report.passed(), "{rate}\n{report}{:?}", report.ours);
    }
}

// Each of them fails as often as it is attempted, and others are answered meanwhile.
#[test]
fn prompts_that_make_a_provider_fail_close_it_for_nobody_else() {
    for (rate, bad, code) in [(10, 0.5, 500), (40, 0.5, 503), (100, 0.6, 502)] {
        let text = format!(
            "id: x\ntitle: t\nabout: a\nrate: {rate}\nfault: 40s\n\
             callers: [{{ name: good, share: {good} }}, {{ name: bad, share: {bad} }}]\nupstreams:\n  \
             - {{ name: main, faults: [{{ callers: [bad], does: {{ status: {{ code: {code} }} }} }}] }}\n\
             gates: {{ opens: {{ max: 0 }}, success@good: {{ min: 0.98 }} }}\n",
            good = 1.0 - bad
        );
        let scenario = Scenario::parse("x", &text).expect("it is a scenario");
        let report = scenarios::run(&scenario, ALONE).expect("it runs");
        assert!(report.passed(), "{rate}\n{report}{:?}", report.ours);
    }
}
