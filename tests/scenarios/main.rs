//! Every scenario with its gates: what the recovery policy must reach on the real layers, in
//! virtual time.
#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

mod shared_target;
mod two_targets;

use std::time::Duration;

use relight::internals::scenarios::{self, Report, Scenario, ScenarioOptions};

/// Without the references, which only the rule of all scenarios needs.
const ALONE: ScenarioOptions = ScenarioOptions {
    seed: 1,
    rate: None,
    length: None,
    references: false,
};

/// With them.
const BESIDE: ScenarioOptions = ScenarioOptions {
    references: true,
    ..ALONE
};

/// Faults that last for a short while.
const FAULTS: [&str; 4] = [
    "{ status: { code: 500 } }",
    "{ status: { code: 503 } }",
    "{ reset: {} }",
    "{ status: { code: 429, headers: [[retry-after, \"1\"]] } }",
];

fn scenario(id: &str) -> Scenario {
    let all = scenarios::all().expect("every file is a scenario");
    all.into_iter()
        .find(|scenario| scenario.id == id)
        .expect("there is such a scenario")
}

fn run(id: &str, options: ScenarioOptions) -> Report {
    scenarios::run(&scenario(id), options).expect("it runs")
}

/// Plays a scenario that a test wrote.
fn played(text: &str) -> Report {
    let scenario = Scenario::parse("x", text).expect("it is a scenario");
    scenarios::run(&scenario, BESIDE).expect("it runs")
}

fn passes(id: &str) -> Report {
    passes_with(id, BESIDE)
}

/// Passes its own gates; for a row whose references do what those of another row do.
fn passes_alone(id: &str) -> Report {
    passes_with(id, ALONE)
}

fn passes_with(id: &str, options: ScenarioOptions) -> Report {
    let report = run(id, options);
    assert!(report.passed(), "\n{report}{:?}", report.ours);
    report
}

#[test]
fn every_scenario_of_the_table_has_a_file() {
    let all = scenarios::all().expect("every file is a scenario");
    for number in 0..=28 {
        let of_number = |id: &str| id.trim_end_matches(char::is_alphabetic) == number.to_string();
        assert!(
            all.iter().any(|scenario| of_number(&scenario.id)),
            "{number}"
        );
    }
}

#[test]
fn the_page_has_the_table_with_a_row_for_each_scenario() {
    let page = include_str!("../../docs/proofs.md");
    let empty = scenarios::markdown(&[]);
    let (_, table) = page.split_once(&empty).expect("the page has such a table");
    let rows: Vec<_> = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    let all = scenarios::all().expect("every file is a scenario");
    assert_eq!(rows.len(), all.len());
    for (row, scenario) in rows.iter().zip(all) {
        let begins = format!("| {} | {} |", scenario.id, scenario.title);
        assert!(row.starts_with(&begins), "{row}: not {begins}");
        for gate in scenario.gates.keys() {
            assert!(row.contains(gate.as_str()), "{row}: no {gate}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_events_and_another_seed_gives_others() {
    let brief = ScenarioOptions {
        rate: Some(20.0),
        ..ALONE
    };
    let first = run("10", brief);
    assert_eq!(first.events_hash, run("10", brief).events_hash);
    assert_ne!(
        first.events_hash,
        run("10", ScenarioOptions { seed: 2, ..brief }).events_hash
    );
}

#[test]
fn a_provider_that_refuses_some_calls_at_random_is_not_paced() {
    passes("23a");
    passes("23b");
}

#[test]
fn steady_traffic_is_left_alone_for_half_an_hour() {
    let report = run(
        "0",
        ScenarioOptions {
            rate: Some(5.0),
            ..ALONE
        },
    );
    assert!(report.passed() && report.calls > 8_000, "\n{report}");
}

#[test]
fn steady_traffic_of_fifty_a_second_is_left_alone() {
    let report = run(
        "0",
        ScenarioOptions {
            length: Some(Duration::from_mins(1)),
            ..ALONE
        },
    );
    assert!(report.passed(), "\n{report}");
}

#[test]
fn a_blip_is_recovered() {
    passes("1");
}

#[test]
fn a_tenth_of_failures_is_recovered() {
    passes("2a");
}

#[test]
fn a_third_of_failures_is_recovered_and_opens_nothing() {
    passes("2b");
}

#[test]
fn half_of_failures_is_reported() {
    passes("2c");
}

#[test]
fn an_outage_costs_the_provider_little_and_ends_soon() {
    passes("3");
}

#[test]
fn an_outage_is_covered_by_a_fallback() {
    passes("4");
}

#[test]
fn a_hang_is_seen_when_its_timeout_is_over() {
    passes("5");
}

#[test]
fn a_brown_out_is_borne_alone() {
    passes("6a");
}

#[test]
fn a_brown_out_is_covered_by_a_fallback() {
    passes("6b");
}

#[test]
fn a_rate_limit_is_used_and_not_run_into() {
    passes("7");
}

#[test]
fn a_bad_replica_is_left() {
    passes("8");
}

#[test]
fn cut_streams_are_begun_again_without_a_trace() {
    passes("9");
}

#[test]
fn a_flapping_provider_is_used_while_it_is_up() {
    passes("10");
}

#[test]
fn an_overload_ends() {
    passes("11");
}

#[test]
fn a_poison_caller_harms_no_other_caller() {
    passes("12");
}

#[test]
fn a_spent_quota_harms_no_other_credential() {
    passes("13");
}

#[test]
fn a_hang_is_detected_although_every_caller_disconnects() {
    passes("14");
}

#[test]
fn a_retry_after_of_an_hour_is_no_doomed_sleep() {
    passes("16a");
}

#[test]
fn a_retry_after_of_zero_is_no_hot_loop() {
    passes("16b");
}

#[test]
fn a_retry_after_in_the_past_is_no_hot_loop() {
    passes_alone("16c");
}

#[test]
fn a_retry_after_of_garbage_is_no_hot_loop() {
    passes_alone("16d");
}

#[test]
fn a_ramp_of_failures_degrades_evenly() {
    passes("17");
}

#[test]
fn late_results_from_before_an_outage_have_no_effect() {
    let (answers, failures) = (passes("15a"), passes_alone("15b"));
    let moves = |report: &Report| {
        let first_minute = report.circuits.iter().filter(|(at, _, _)| *at < 60.0);
        first_minute
            .map(|(at, _, what)| (format!("{at:.3}"), what.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(moves(&answers), moves(&failures));
    assert!(moves(&answers).len() > 10);
}

#[test]
fn short_outages_are_outlasted() {
    passes("18a");
}

#[test]
fn short_outages_of_both_targets_are_outlasted() {
    passes("18b");
}

#[test]
fn what_was_never_sent_costs_no_attempt() {
    passes("19");
}

#[test]
fn a_limit_of_two_seconds_is_no_worse_than_without_at_any_rate() {
    for id in ["20a", "20b", "20c"] {
        for rate in [1.0, 10.0, 100.0] {
            let report = run(
                id,
                ScenarioOptions {
                    rate: Some(rate),
                    ..BESIDE
                },
            );
            assert!(report.passed(), "{rate}/s\n{report}{:?}", report.ours);
        }
    }
}

#[test]
fn an_outage_after_a_limit_is_waited_out() {
    passes("21");
}

#[test]
fn a_refused_key_is_reported_at_once_and_its_correction_is_used_at_once() {
    passes("22");
}

/// Rows of 400 calls a second and more, which take minutes in a build that is not optimised:
/// `.ci/run scenarios` runs them, as all rows, with several seeds.
const OF_LARGE_FLEETS: [&str; 3] = ["24d", "24g", "27b"];

/// Every row of this number passes.
fn all_pass(number: &str) {
    let all = scenarios::all().expect("every file is a scenario");
    let ids = all.iter().map(|scenario| scenario.id.as_str());
    let rows: Vec<_> = ids
        .filter(|id| id.trim_end_matches(char::is_alphabetic) == number)
        .filter(|id| !OF_LARGE_FLEETS.contains(id))
        .collect();
    assert!(!rows.is_empty(), "{number}");
    for row in rows {
        passes(row);
    }
}

#[test]
fn an_outage_costs_a_fleet_what_it_costs_one_circuit_and_one_call_a_replica() {
    all_pass("24");
}

#[test]
fn a_sick_replica_closes_nobody_elses_circuit() {
    all_pass("25");
}

#[test]
fn no_fault_of_the_store_makes_replicas_worse_than_lone_ones() {
    all_pass("26");
}

#[test]
fn callers_of_many_replicas_return_as_those_of_one() {
    all_pass("27");
}

#[test]
fn a_rolling_restart_is_not_noticed_and_a_new_process_knows_of_an_outage() {
    all_pass("28");
}

#[test]
fn replicas_too_give_the_same_events_for_the_same_seed() {
    assert_eq!(run("24b", ALONE).events_hash, run("24b", ALONE).events_hash);
}

/// A fault of one target: what happens, from when on and for how long, in milliseconds.
type Outage = (&'static str, u64, u64);

/// The share of calls that is answered by targets with these outages.
fn success(outages: &[(usize, Outage)], seed: u64) -> f64 {
    let upstream = |(index, (does, from, lasts)): &(usize, Outage)| {
        let to = from + lasts;
        format!(
            "  - name: target-{index}\n    faults:\n      - {{ from: {from}ms, to: {to}ms, does: {does} }}\n"
        )
    };
    let upstreams: String = outages.iter().map(upstream).collect();
    let text = format!(
        // With retries for both targets and one after a wait.
        "id: x\ntitle: t\nabout: a\nrate: 1\nwarm: 2s\nfault: 6s\ntail: 0s\nupstreams:\n{upstreams}\
         policy: {{ retry: {{ max_retries: 3 }} }}\ngates: {{}}\n"
    );
    let scenario = Scenario::parse("x", &text).expect("it is a scenario");
    let report = scenarios::run(&scenario, ScenarioOptions { seed, ..ALONE }).expect("it runs");
    report.ours.get("success").unwrap_or(1.0)
}

/// A number below another one, from a seed.
fn draw(seed: u64, salt: u64, below: u64) -> u64 {
    (seed * 2_654_435_761 + salt * 40_503).rotate_left(7) % below
}

#[test]
fn two_targets_that_fail_together_answer_at_least_what_one_answers_alone() {
    for seed in 0..24_u64 {
        let fault = FAULTS[usize::try_from(seed).unwrap() % FAULTS.len()];
        let outage = (fault, draw(seed, 2, 1000), 500 + draw(seed, 3, 4500));
        let (alone, together) = (
            success(&[(0, outage)], seed),
            success(&[(0, outage), (1, outage)], seed),
        );
        assert!(
            together >= alone,
            "{together} together, {alone} alone: {outage:?}, seed {seed}"
        );
    }
}

#[test]
fn two_targets_that_fail_apart_answer_at_least_what_each_answers_alone() {
    const KINDS: [&str; 4] = [FAULTS[1], FAULTS[3], "unreachable", "hang"];
    for seed in 0..32_u64 {
        let outage = |target: u64| {
            let kind = KINDS[usize::try_from(seed >> (2 * target)).unwrap() % KINDS.len()];
            (
                kind,
                draw(seed, 4 + 3 * target, 4000),
                300 + draw(seed, 5 + 3 * target, 4700),
            )
        };
        let (first, second) = ((0, outage(0)), (1, outage(1)));
        let alone = success(&[first], seed).max(success(&[second], seed));
        let together = success(&[first, second], seed);
        assert!(
            together >= alone,
            "{together} together, {alone} alone: {first:?}, {second:?}, seed {seed}"
        );
    }
}

#[test]
fn faults_drawn_at_random_are_no_worse_than_without() {
    for seed in 1..=4 {
        let run = scenarios::random(seed, Duration::from_mins(2), None).expect("it runs");
        let failed: Vec<_> = run
            .verdicts
            .iter()
            .filter(|verdict| verdict.failed())
            .collect();
        assert!(
            failed.is_empty(),
            "seed {seed}: {failed:?}\n{}",
            run.faults.join("\n")
        );
    }
}

/// A short scenario with these exceptions, in which a wrong key or nothing is what happens.
fn excepted(faults: &str, beyond: &str) -> Result<Report, String> {
    let text = format!(
        "id: x\ntitle: t\nabout: a\nrate: 5\nwarm: 1s\nfault: 5s\ntail: 1s\nupstreams: [{{ name: main, faults: [{faults}] }}]\n\
         gates: {{}}\nbeyond: {beyond}\n"
    );
    let scenario = Scenario::parse("x", &text).map_err(|error| error.to_string())?;
    Ok(scenarios::run(&scenario, BESIDE).expect("it runs"))
}

#[test]
fn an_exception_needs_a_reason_and_goes_when_what_it_is_for_is_passed() {
    for wrong in [
        "{ speed: \"slow by design\" }",
        "{ success_ideal: \"\" }",
        "{ success_ideal: }",
    ] {
        assert!(excepted("", wrong).is_err(), "{wrong}");
    }
    let beyond = "{ success_ideal: \"told at once\" }";
    let refused = "{ does: { status: { code: 401 } }, to: 4s }";
    let open = excepted(refused, beyond).expect("it is a scenario");
    let shown = open.to_string();
    assert!(
        open.passed() && shown.contains("open   success (ideal)") && shown.contains("told at once"),
        "{shown}"
    );
    assert!(shown.contains("gates passed, 1 open"), "{shown}");
    assert!(!excepted(refused, "{}").expect("it is a scenario").passed());
    let needless = excepted("", beyond).expect("it is a scenario");
    assert!(!needless.passed(), "{needless}");
}

#[test]
fn each_fault_of_a_scenario_is_reported_with_its_place() {
    let text = "id: x\ntitle: t\nabout: a\nrate: fast\nupstream: []\ngates: {}\n";
    let faults = Scenario::parse("x.yaml", text)
        .expect_err("it is no scenario")
        .to_string();
    assert!(
        faults.contains("x.yaml:4:") && faults.contains("rate"),
        "{faults}"
    );
    assert!(
        faults.contains("x.yaml:5:") && faults.contains("upstream"),
        "{faults}"
    );
}
