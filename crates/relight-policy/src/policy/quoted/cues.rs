//! The words, keys and names by which a quotation is known.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Keys whose value repeats what the caller sent or the model wrote, without signs between words.
pub(super) const ECHOES: [&str; 16] = [
    "input",
    "inputvalue",
    "prompt",
    "failedgeneration",
    "requestbody",
    "requestid",
    "documentationurl",
    "received",
    "rejectedvalue",
    "invalidvalue",
    "actualvalue",
    "instance",
    "providedvalue",
    "givenvalue",
    "unionerrors",
    "attemptedvalue",
];

/// More of them in what a server says that failed.
pub(super) const SENT: [&str; 6] = [
    "request",
    "query",
    "question",
    "inputs",
    "prompts",
    "userinput",
];

/// Keys whose value is a conversation, if it has roles.
pub(super) const TALKS: [&str; 2] = ["messages", "contents"];

/// Keys of a list of faults whose value is the provider's own; what stands under any other key of
/// such a list may be the caller's.
pub(super) const OWN: [&str; 22] = [
    "msg",
    "message",
    "defaultmessage",
    "code",
    "errorcode",
    "type",
    "errortype",
    "title",
    "status",
    "statuscode",
    "reason",
    "error",
    "errors",
    "detail",
    "details",
    "description",
    "keyword",
    "name",
    "kind",
    "cause",
    "raw",
    "response",
];

/// Keys of a list of faults whose object belongs to the caller as a whole.
pub(super) const CARRIERS: [&str; 3] = ["ctx", "params", "value"];

/// Keys that only a list of faults of a request has.
pub(super) const FAULTS: [&str; 8] = [
    "\"loc\"",
    "'loc'",
    "instancepath",
    "fieldviolations",
    "\"path\":[",
    "\"path\": [",
    "unrecognized_keys",
    "\"validation\":",
];

/// Words behind which a sentence names what is wrong with a request.
pub(super) const BEFORE: &[&str] = &[
    "invalid schema",
    "invalid value",
    "invalid type",
    "invalid enum",
    "invalid json payload",
    "invalid parameter",
    "invalid argument '",
    "invalid argument \"",
    "invalid input",
    "invalid '",
    "invalid \"",
    "invalid `",
    "invalid option",
    "invalid role",
    "invalid model",
    "invalid tool",
    "json schema is invalid",
    "unknown name",
    "unknown parameter",
    "unknown field",
    "unknown variant",
    "unknown model",
    "unknown key",
    "unknown role",
    "unexpected role",
    "unexpected value",
    "unexpected keyword",
    "unrecognized",
    "unsupported value",
    "unsupported parameter",
    "unsupported model",
    "unsupported role",
    "missing required",
    "validation error",
    "validation failed",
    "failed to satisfy constraint",
    "input should be",
    "input tag",
    "should match pattern",
    "does not match",
    "must be one of",
    "must be a",
    "expected one of",
    "expected a",
    "expected type",
    "not allowed (",
    "extra inputs are not permitted",
    "malformed input request",
    "failed to deserialize",
    "cannot deserialize",
    "could not deserialize",
    "cannot unmarshal",
    "additional properties",
    "must be satisfied",
    "has bad properties",
    "is not a valid",
    "parse the json body",
    "parse the request body",
    "parse request body",
    "failed validating",
    "on instance",
];

/// Words behind which a sentence says what is wrong with what it just named.
pub(super) const BEHIND: &[&str] = &[
    " is not valid under",
    " is not one of",
    " is not of type",
    " is not a valid",
    " is a required property",
    " is too long",
    " is too short",
    " is not of the expected",
    " was unexpected",
    " were unexpected",
    " does not match",
    " is not allowed",
    " is not permitted",
    " is not supported",
    " must be ",
    " should be ",
    " the following must be satisfied",
    " failed to satisfy",
    " does not exist",
    " not found",
    " is not found",
    " is not accepted",
    " is not recognized",
    " is unknown",
    " is not included in",
    " is not in ",
    " which is not",
];

/// Words behind which a caller's own follow, without quotes, to the end.
pub(super) const UP_TO_THE_END: [&str; 24] = [
    "invalid value:",
    "invalid model:",
    "invalid model name:",
    "invalid role:",
    "unknown model:",
    "unknown parameter:",
    "unknown field:",
    "unknown role:",
    "unknown key:",
    "unsupported model:",
    "unsupported value:",
    "unsupported parameter:",
    "unrecognized request argument supplied:",
    "unrecognized request arguments supplied:",
    "value error,",
    "input_value=",
    "but got:",
    "but got",
    ", got",
    ", received",
    ". got:",
    "duplicate function name:",
    "duplicate tool name:",
    "specified `tools`:",
];

/// An end of a sentence whose subject is the caller's, whatever it says.
pub(super) const EXTRA: &str = ": extra inputs are not permitted";

/// Subjects and predicates between which a caller's own words appear without quotes.
pub(super) const BETWEEN: [(&str, &[&str]); 7] = [
    ("tool call id was ", &[" but must"]),
    ("the ", &[" field is required"]),
    (
        "",
        &[
            " is not a valid model",
            " is not a valid enum value",
            " is not a valid role",
            EXTRA,
        ],
    ),
    (
        "the model ",
        &[" does not exist", " is not found", " was not found"],
    ),
    (
        "model ",
        &[
            " does not exist",
            " not found",
            " is not found",
            " is not supported",
        ],
    ),
    ("models/", &[" is not found", " does not exist"]),
    ("unable to access model ", &[". please"]),
];

/// Nouns that a name follows.
const NOUNS: [&str; 12] = [
    "model",
    "function",
    "tool",
    "property",
    "field",
    "argument",
    "value",
    "role",
    "parameter",
    "key",
    "keys",
    "id",
];

/// Words behind which a quotation is what somebody said, and no name.
const SAYING: [&str; 24] = [
    "returned",
    "returns",
    "said",
    "says",
    "saying",
    "error",
    "errors",
    "message",
    "responded",
    "reported",
    "replied",
    "answered",
    "with",
    "reason",
    "status",
    "failed",
    "exception",
    "raised",
    "threw",
    "got",
    "because",
    "caused",
    "request",
    "response",
];

/// More of them, behind which a server quotes what failed in it.
const TELLING: [&str; 7] = [
    "details",
    "desc",
    "cause",
    "template",
    "unavailable",
    "upstream",
    "provider",
];

/// Those of them behind which a server that failed quotes its caller.
const ASKING: [&str; 2] = ["request", "got"];

/// Names of providers' interfaces: roles, parameters, types, and the parts of messages and completions.
const INTERFACE: &str = "\
    system user assistant tool tools developer function functions model role content messages message \
    name type text object array string integer number boolean null None json json_object json_schema \
    tool_calls tool_call_id tool_call tool_use tool_result tool_choice function_call functionCall \
    functionResponse parallel_tool_calls input inputs parts contents image image_url input_text \
    output_text refusal reasoning thinking reasoning_content reasoning_effort temperature top_p top_k \
    function_declarations functionDeclarations generation_config generationConfig \
    seed stop stop_sequences stream stream_options n logprobs top_logprobs logit_bias max_tokens \
    max_completion_tokens max_output_tokens max_new_tokens frequency_penalty presence_penalty \
    response_format store metadata service_tier strict parameters properties required enum items \
    additionalProperties id choices candidates delta usage finish_reason index error response output";

pub(super) static CUES: LazyLock<[Option<AhoCorasick>; 2]> =
    LazyLock::new(|| [AhoCorasick::new(BEFORE).ok(), AhoCorasick::new(BEHIND).ok()]);

pub(super) fn follows_noun(before: &str) -> bool {
    let before = before.trim_end_matches([' ', ':', '=', '(']);
    NOUNS.iter().any(|noun| {
        let rest = before.strip_suffix(noun);
        rest.is_some_and(|rest| !rest.ends_with(char::is_alphanumeric))
    })
}

/// Returns whether a quotation names a thing: it follows a word, and none that says what was said.
pub(super) fn names(before: &str) -> bool {
    let word = before.strip_suffix(' ').unwrap_or_default();
    let last = word.rsplit(|c: char| !c.is_alphanumeric()).next();
    last.is_some_and(|last| !last.is_empty() && !SAYING.contains(&last))
}

/// Returns whether a quotation is what somebody said of a failure.
pub(super) fn is_said(before: &str) -> bool {
    let before = before.trim_end_matches([' ', ':', '=', '(', ',']);
    let last = before.rsplit(|c: char| !c.is_alphanumeric()).next();
    let says = |word: &&str| last.is_some_and(|last| last.ends_with(word));
    SAYING.iter().chain(&TELLING).any(says) && !ASKING.iter().any(says)
}

/// Returns whether all that follows is the caller's.
pub(super) fn nothing_else_follows(before: &str) -> bool {
    let before = before.trim();
    before == "model:" || UP_TO_THE_END.iter().any(|words| before.ends_with(words))
}

/// Returns whether a quoted text is a name, or a path of names, that providers' interfaces have.
pub(super) fn is_of_an_interface(quoted: &str) -> bool {
    if quoted.contains(char::is_whitespace) {
        return false;
    }
    let mut words = quoted.split(|c: char| !(c.is_alphabetic() || matches!(c, '_' | '-')));
    words.all(|word| word.is_empty() || INTERFACE.split(' ').any(|name| name == word))
}
