//! What a tool says of a failure in words of its own.

use super::*;

#[test]
fn what_a_tool_says_of_a_call_in_words_of_its_own_is_not_met_by_the_same_call() {
    for (text, class, retry) in [
        (
            "Nothing to update: all fields are equal",
            FailureClass::InvalidRequest,
            false,
        ),
        (
            "Two of these events overlap",
            FailureClass::InvalidRequest,
            false,
        ),
        ("Tool call failed", FailureClass::Unknown, true),
        (
            "Failed to save the page: two of these events overlap",
            FailureClass::InvalidRequest,
            false,
        ),
        (
            "The shelf is being swept, come back in a moment",
            FailureClass::Unknown,
            true,
        ),
        (
            "The planner is asleep, come again",
            FailureClass::Unknown,
            true,
        ),
        (
            "the tool reported an error without words",
            FailureClass::Unknown,
            true,
        ),
    ] {
        let verdict = judge(&error_text(Surface::Tool, text));
        assert_eq!((verdict.class, verdict.retryable), (class, retry), "{text}");
        let elsewhere = judge(&error_text(Surface::Http, text));
        assert_eq!(elsewhere.class, FailureClass::Unknown, "{text}");
    }
}

#[test]
fn a_word_of_a_script_without_spaces_is_a_clause() {
    for (text, class, retry) in [
        ("枚举类型不可调用", FailureClass::InvalidRequest, false),
        ("上传失败", FailureClass::ServerError, false),
        ("上传失败，请稍后再试", FailureClass::Unknown, true),
    ] {
        let verdict = judge(&error_text(Surface::Tool, text));
        assert_eq!((verdict.class, verdict.retryable), (class, retry), "{text}");
    }
}

#[test]
fn a_tool_that_names_only_the_step_that_failed_failed_itself() {
    for text in [
        "Failed to sweep the shelf",
        "Error sweeping shelf 7: x",
        "Sweep failure",
    ] {
        let verdict = judge(&error_text(Surface::Tool, text));
        assert_eq!(
            (verdict.class, verdict.retryable, &*verdict.rule),
            (FailureClass::ServerError, false, "tool.failed"),
            "{text}"
        );
    }
}
