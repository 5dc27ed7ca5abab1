//! Every scenario of the recovery policy meets its gates: the real stack, in virtual time, over scripted upstreams.
//!
//! `relight scenarios` prints the same as a table, beside a naive client and the clairvoyant ideal.

use std::time::Duration;

use relight::scenarios::{Options, Report, all, run, table};

fn report(id: &str, options: Options) -> Report {
    let scenario = all().unwrap().into_iter().find(|scenario| scenario.id == id);
    let Some(scenario) = scenario else { panic!("there is no scenario {id}") };
    run(&scenario, options).unwrap()
}

fn meets_its_gates(id: &str, options: Options) {
    let report = report(id, options);
    assert!(!report.verdicts.is_empty(), "scenario {id} has no gate");
    assert!(report.passed(), "{}", table(&[report]));
}

macro_rules! scenarios {
    ($($name:ident: $id:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                meets_its_gates($id, Options::default());
            }
        )*

        #[test]
        fn every_scenario_is_a_test() {
            let mut tested = vec!["0", $($id),*];
            tested.sort_unstable();
            let mut known: Vec<String> = all().unwrap().into_iter().map(|scenario| scenario.id).collect();
            known.sort_unstable();
            assert_eq!(tested, known);
        }
    };
}

// What the command runs for half an hour is run for two minutes here: nothing changes with time in it.
#[test]
fn steady_traffic_opens_nothing_and_costs_nothing() {
    meets_its_gates("0", Options { length: Some(Duration::from_mins(2)), ..Options::default() });
}

#[test]
fn the_same_seed_gives_the_same_event_log() {
    let first = report("1", Options::default());
    assert_eq!(first.events_hash, report("1", Options::default()).events_hash);
    assert_ne!(first.events_hash, report("1", Options { seed: 2, ..Options::default() }).events_hash);
}

scenarios! {
    a_blip_is_survived: "1",
    one_failure_in_ten_is_survived: "2a",
    three_failures_in_ten_open_nothing: "2b",
    five_failures_in_ten_are_reported_as_they_are: "2c",
    an_outage_without_a_fallback_is_found_and_left_fast: "3",
    an_outage_with_a_fallback_is_hardly_seen: "4",
    a_hang_is_found_within_the_first_token_timeout: "5",
    a_brownout_alone_is_waited_through: "6a",
    a_brownout_with_a_fallback_is_left: "6b",
    a_rate_limit_is_paced: "7",
    one_bad_replica_of_four_is_avoided: "8",
    cut_streams_lose_and_double_nothing: "9",
    flapping_is_ridden_out: "10",
    an_overload_is_recovered_from: "11",
    a_poisonous_tenant_harms_nobody_else: "12",
    a_spent_credential_is_asked_once_a_call: "13",
    impatient_callers_do_not_hide_a_hang: "14",
    late_answers_change_nothing: "15a",
    late_failures_change_nothing: "15b",
    a_wait_of_an_hour_is_no_doomed_sleep: "16a",
    a_wait_of_zero_is_no_hot_loop: "16b",
    a_wait_in_the_past_is_no_hot_loop: "16c",
    garbage_for_a_wait_is_no_wait: "16d",
    a_ramp_degrades_step_by_step: "17",
}
