//! The figures that pages state of what cannot be set are those of the source.

use std::fs;

use super::root;

/// A page, its words, and the lines of a source that they come from.
struct Figure {
    page: &'static str,
    words: &'static str,
    source: &'static str,
    lines: &'static [&'static str],
}

const RELEASES: &str = "crates/relight-policy/src/policy/release/setting.rs";
const EVIDENCE: &str = "crates/relight-policy/src/policy/release/evidence.rs";
const GATES: &str = "crates/relight-policy/src/policy/gates/probes.rs";
const LEFT_OUT: &str = "crates/relight-policy/src/domain/left_out.rs";

const FIGURES: &[Figure] = &[
    Figure {
        page: "releases",
        words: "in a row within 5 minutes",
        source: RELEASES,
        lines: &["CONSECUTIVE_WINDOW: Duration = Duration::from_mins(5);"],
    },
    Figure {
        page: "releases",
        words: "or 2 in a row that share a signature",
        source: RELEASES,
        lines: &["SAME_SIGNATURE: u64 = 2;"],
    },
    Figure {
        page: "releases",
        words: "each of at least 5 executions failed",
        source: RELEASES,
        lines: &["ALL_FAILED: u64 = 5;"],
    },
    Figure {
        page: "releases",
        words: "success in the last 50 executions",
        source: RELEASES,
        lines: &["WINDOW: u32 = 50;"],
    },
    Figure {
        page: "releases",
        words: "the e-process against the stable release reaches 100",
        source: RELEASES,
        lines: &["FINAL_EVIDENCE: f64 = 100.0;"],
    },
    Figure {
        page: "releases",
        words: "the e-process reaches 10,",
        source: RELEASES,
        lines: &["DROP_EVIDENCE: f64 = 10.0;"],
    },
    Figure {
        page: "releases",
        words: "no further one follows for 10 minutes",
        source: RELEASES,
        lines: &["cool_down: Duration::from_mins(10),"],
    },
    Figure {
        page: "releases",
        words: "3 automatic rollbacks of a subject within 24 hours",
        source: RELEASES,
        lines: &[
            "FREEZE_AFTER: usize = 3;",
            "FREEZE_WINDOW: Duration = Duration::from_hours(24);",
        ],
    },
    Figure {
        page: "releases",
        words: "not used for 30 days",
        source: RELEASES,
        lines: &["UNUSED_AFTER: Duration = Duration::from_hours(720);"],
    },
    Figure {
        page: "releases",
        words: "five times as long as half of the stable release's, and 50 ms longer",
        source: EVIDENCE,
        lines: &["SLOW_FACTOR: u64 = 5;", "SLOW_BY_MS: u64 = 50;"],
    },
    Figure {
        page: "releases",
        words: "at most 1 in 50, over all runs",
        source: "crates/relight-policy/src/policy/release/lanes.rs",
        lines: &["RUN_ERROR: f64 = 0.02;"],
    },
    Figure {
        page: "gates",
        words: "at least 1 s and at most 60 s",
        source: GATES,
        lines: &["(Duration::from_secs(1), Duration::from_mins(1));"],
    },
    Figure {
        page: "gates",
        words: "by one in twenty of them",
        source: GATES,
        lines: &["CALLS_A_PROBE: f64 = 20.0;"],
    },
    Figure {
        page: "dialects",
        words: "at `openai_chat` what is more than\nfour, at `gemini` what is more than five",
        source: LEFT_OUT,
        lines: &[
            "Dialect::OpenaiChat => (4, true),",
            "Dialect::Gemini => (5, true),",
        ],
    },
    Figure {
        page: "tools",
        words: "only 64 MiB without a response",
        source: "crates/relight-tool/src/unsolicited.rs",
        lines: &["BYTES: (f64, f64) = (64.0 * MEBIBYTE, MEBIBYTE);"],
    },
    Figure {
        page: "tools",
        words: "whose name is not 1 to 128 letters",
        source: "crates/relight-tool/src/listing.rs",
        lines: &["MAX_NAME_BYTES: usize = 128;"],
    },
    Figure {
        page: "on-call",
        words: "counted for two seconds (`--interval`)",
        source: "src/cli/top.rs",
        lines: &["default_value = \"2s\")]\n    interval: Duration,"],
    },
];

#[test]
fn figures_that_cannot_be_set_are_those_of_the_source() {
    let read = |path: &str| {
        fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    for figure in FIGURES {
        let page = format!("docs/{}.md", figure.page);
        assert!(
            read(&page).contains(figure.words),
            "{page} does not have: {}",
            figure.words
        );
        for line in figure.lines {
            assert!(
                read(figure.source).contains(line),
                "{page} says: {}, but {} does not have: {line}",
                figure.words,
                figure.source
            );
        }
    }
}
