//! The order of the layers, pair by pair, each with what would break the other way round.

const STACK: &str = include_str!("../../src/stack.rs");

/// The outer layer, the inner one, and what would break if they changed places.
const PAIRS: &[(&str, &str, &str)] = &[
    (
        "Observe",
        "TenantLimits",
        "a call over its tenant's limits would have no span and no event",
    ),
    (
        "TenantLimits",
        "Admit",
        "calls that a tenant may not make would take places from others",
    ),
    (
        "Admit",
        "Deadline",
        "a call that is shed would have been given a clock of its own",
    ),
    ("Deadline", "Retry", "each retry would start a new clock"),
    (
        "Retry",
        "Select",
        "all attempts would go to the target that the first one went to",
    ),
    (
        "Select",
        "Inject",
        "the note would be placed before it is known what the target's dialect takes",
    ),
    (
        "Inject",
        "Hedge",
        "the two attempts of a hedge would not say the same",
    ),
    (
        "Hedge",
        "Affinity",
        "a conversation would stay with the target that a hedge abandoned",
    ),
    (
        "Affinity",
        "Gates",
        "a conversation would stay with a target whose gate refuses it",
    ),
    (
        "Gates",
        "Concurrency",
        "an attempt that a gate refuses would have cost a slot",
    ),
    (
        "Concurrency",
        "Circuit",
        "a permit of the circuit would age while its attempt waits for a slot",
    ),
    (
        "Circuit",
        "ObserveAttempt",
        "what Relight refuses itself would leave the record and the span of an attempt",
    ),
    (
        "ObserveAttempt",
        "TraceWire",
        "the client span would have no attempt to hang under",
    ),
    (
        "TraceWire",
        "Classify",
        "the client span of a failed attempt would not know its class",
    ),
    (
        "Classify",
        "Timers",
        "a silence that the timers end would not be classified",
    ),
];

/// The layers as the stack names them, from the outermost.
fn layers() -> Vec<&'static str> {
    let lines = STACK
        .lines()
        .filter_map(|line| line.trim().strip_prefix(".layer("));
    lines
        .map(|rest| rest.split("Layer").next().unwrap())
        .collect()
}

#[test]
fn each_layer_is_directly_outside_the_next_one_and_none_is_without_a_reason() {
    let layers = layers();
    for ((outer, inner), (expected_outer, expected_inner, otherwise)) in
        layers.iter().zip(&layers[1..]).zip(PAIRS.iter().copied())
    {
        assert_eq!(
            (*outer, *inner),
            (expected_outer, expected_inner),
            "otherwise {otherwise}"
        );
    }
    assert_eq!(
        layers.len(),
        PAIRS.len() + 1,
        "every pair has its reason: {layers:?}"
    );
}
