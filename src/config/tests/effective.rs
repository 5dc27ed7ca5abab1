//! Tests of effective configurations, one for each guarantee.

use std::time::Duration;

use super::*;
use crate::{domain::invocation::InjectionMode, policy::circuit::CircuitMode};

const TARGETS: &str = "
providers: { s: { dialect: scripted } }
targets: { t: { provider: s, model: m } }
";

fn with_targets(text: &str) -> Config {
    loaded(&format!("{TARGETS}{text}"), &[])
}

fn policy(config: &Config, operation: &str, preset: Option<&str>) -> PolicyConfig {
    let route = &config.routes[config.default_route.as_ref().unwrap()];
    config.policy_for(route, Some(&Operation::from(operation)), preset)
}

#[test]
fn planning_operations_retry_once_and_all_others_as_their_policy_requires() {
    let config = Config::default();
    for (operation, retries) in [
        ("executor", 2),
        ("planner", 1),
        ("evaluator", 1),
        ("replanner", 1),
        ("mine", 2),
    ] {
        assert_eq!(
            policy(&config, operation, None).retry.max_retries,
            retries,
            "{operation}"
        );
    }
}

#[test]
fn the_setting_that_is_closest_to_the_call_wins() {
    let config = with_targets(
        "
routes:
  default:
    targets: [t]
    policy: patient
    operations: { executor: { max_retries: 4 }, replanner: { policy: patient } }
operations:
  executor: { max_retries: 0, injection: never }
  evaluator: { policy: agent }
  reviewer: { enabled: false }
",
    );
    // The route's policy.
    assert_eq!(policy(&config, "mine", None).retry.max_retries, 3);
    // The route's operation before the operation on all routes; what it leaves out is taken from
    // there.
    let executor = policy(&config, "executor", None);
    assert_eq!(
        (executor.retry.max_retries, executor.injection.mode),
        (4, InjectionMode::Never)
    );
    // A policy that is named brings its own retries.
    assert_eq!(policy(&config, "evaluator", None).retry.max_retries, 2);
    assert!(policy(&config, "evaluator", None).retry.retry_crash);
    assert_eq!(policy(&config, "replanner", None).retry.max_retries, 3);
    // The caller's preset precedes all of them, but cannot switch on what is switched off.
    assert_eq!(
        policy(&config, "executor", Some("standard"))
            .retry
            .max_retries,
        2
    );
    assert!(!policy(&config, "reviewer", Some("patient")).retry.enabled);
}

#[test]
fn a_first_token_timer_that_is_set_alone_takes_the_others_with_it() {
    let config = with_targets(
        "
timers: { first_token: 6s }
routes:
  quick: { targets: [t], timers: { first_token: 1200ms } }
  patient: { targets: [t], timers: { first_token: 2m } }
  own: { targets: [t], timers: { first_token: 3s, soft_first_token: 2s, first_token_alone: 4s } }
default_route: quick
",
    );
    let timers = |route: &str| {
        let timers = config.timers_for(&config.routes[&RouteName::from(route)]);
        [
            timers.soft_first_token,
            timers.first_token,
            timers.first_token_alone,
        ]
        .map(|timer| timer.as_millis())
    };
    let base = [
        config.timers.soft_first_token,
        config.timers.first_token,
        config.timers.first_token_alone,
    ];
    assert_eq!(base.map(|timer| timer.as_millis()), [2_000, 6_000, 60_000]);
    assert_eq!(timers("quick"), [400, 1_200, 60_000]);
    assert_eq!(timers("patient"), [2_000, 120_000, 120_000]);
    assert_eq!(timers("own"), [2_000, 3_000, 4_000]);
}

#[test]
fn settings_written_in_part_keep_the_rest_of_what_they_inherit_from() {
    let config = loaded(
        "
providers: { s: { dialect: scripted } }
targets: { t: { provider: s, model: m, circuit: { mode: consecutive } } }
timers: { idle: 7s, first_token: 40s }
circuit: { open_base: 20s }
policies:
  patient: { retry: { backoff: { base: 2s } } }
  mine: { retry: { max_retries: 1 } }
routes:
  default: { targets: [t], timers: { first_token: 50s } }
  other: { targets: [t] }
",
        &[],
    );
    let circuit = config.circuit_for(&config.targets[&TargetId::from("t")]);
    assert_eq!(
        (circuit.mode, circuit.open_base),
        (CircuitMode::Consecutive, Duration::from_secs(20))
    );

    let timers = config.timers_for(&config.routes[&RouteName::from("default")]);
    assert_eq!(
        (timers.first_token, timers.idle),
        (Duration::from_secs(50), Duration::from_secs(7))
    );
    let timers = config.timers_for(&config.routes[&RouteName::from("other")]);
    assert_eq!(
        (timers.first_token, timers.idle),
        (Duration::from_secs(40), Duration::from_secs(7))
    );

    let patient = &config.policies["patient"].retry;
    assert_eq!(patient.max_retries, 3);
    assert_eq!(
        (patient.backoff.base, patient.backoff.cap),
        (Duration::from_secs(2), Duration::from_secs(32))
    );
    let standard = PolicyConfig::built_in().remove("standard").unwrap();
    assert_eq!(
        config.policies["mine"].retry,
        standard.retry.with_max_retries(1)
    );
}

#[test]
fn the_only_route_is_the_default_one() {
    let config = with_targets("routes: { mine: { targets: [t] } }");
    assert_eq!(config.default_route, Some(RouteName::from("mine")));
}

#[test]
fn a_section_with_nothing_in_it_is_as_good_as_none() {
    let config = loaded("server:\nproviders:\ntargets:\nroutes:\ntelemetry:\n", &[]);
    assert_eq!(show(&config), show(&Config::default()));
}

#[test]
fn anchors_and_aliases_work_as_in_any_yaml() {
    let config = with_targets(
        "
routes:
  default: &base { targets: [t], deadline: 30s }
  other: *base
",
    );
    assert_eq!(
        config.routes[&RouteName::from("other")].deadline,
        Duration::from_secs(30)
    );
}
