//! What agents' tools say in words: files, edits, repositories, pages, databases, containers.
//!
//! A tool speaks of its own world: a string to replace that is not there is no missing model, and a deadlock of transactions
//! is no dead process. So these families hold on the tool's surface only, before the words of providers are asked.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    rule(
        "tool.denied",
        C::PermissionDenied,
        &[
            "access not configured @tool",
            "robots txt .. {not allowed|disallow*|forbid*|specifies|prohibit*} @tool",
            "not granted .. {read|write|edit|delete} access @tool",
            "{refusing|refused|refuses} to {write|read|access|delete|execute|run|edit|open} @tool",
            "outside {of |}{the |your |}{workspace|project|sandbox|working directory|allowed director*|root} @tool",
            "read only {transaction|connection|replica|database|mode} @tool",
            "command denied to user @tool",
            "{tool call|tool use|command|action|operation} .. {blocked|denied|disallowed} by .. policy !content !safety !usage @tool",
            "{required status check|approving review*|branch protection|protected branch} @tool",
        ],
    ),
    rule(
        "tool.credentials",
        C::Authentication,
        &[
            "{permission denied publickey|password authentication failed|noauth|wrongpass|logon denied} @tool",
            "access denied .. using password @tool",
            "login failed for user @tool",
        ],
    ),
    rule(
        "tool.setup",
        C::Configuration,
        &[
            "{not a git repository|terminal prompts disabled|could not read username|docker daemon|port is already allocated|address already in use|user data directory is already in use|profile appears to be in use} @tool",
            "browser is already in use @tool",
            "{chromium|chrome|firefox|webkit|msedge|browser} {distribution|executable|binary} .. {not found|doesnt exist|does not exist|not installed|is missing} @tool",
            "{sh|bash|zsh|dash|ash} # .. not found @tool",
            "=not connected @tool",
            "error not connected @tool",
        ],
    ),
    rule(
        "tool.missing",
        C::NotFound,
        &[
            "could not resolve to {a|an} @tool",
            "pathspec .. did not match @tool",
            "not match any {pages|files|records} @tool",
            "tool .. {is not available|is unavailable} !temporarily !currently @tool",
            "available tools @tool",
            "{unknown revision|bad revision|couldnt find remote ref|no such remote|no such ref|no open pages|no open tabs} @tool",
            "bad request .. not found @tool",
            "no {tab|page|window|frame|job|process|element|session|task|branch} {with|named|called|matching|at} @tool",
        ],
    ),
    invalid(
        "tool.arguments",
        D::ParameterMismatch,
        &[
            "{tool input|arguments|parameters} .. {did not match|does not match|not conform} .. schema @tool",
            "{no|no matching|no suitable|suitable method} overload {matches|found|for|exists|accepts} @tool",
        ],
    ),
    invalid(
        "tool.edit",
        D::Other,
        &[
            "{string|text|block|content} to replace .. not found @tool",
            "{could not find|no} exact match @tool",
            "{old string|old text|search block|search string|search text|oldtext|old str} .. {not found|did not match|no match|not unique|identical|does not appear|multiple} @tool",
            "found # {matches|occurrences} .. {replace*|unique} @tool",
            "{patch does not apply|patch failed|hunk failed|failed to apply patch|hunk .. failed} @tool",
            "file has {not been read|been modified|been unexpectedly modified|changed} @tool",
        ],
    ),
    invalid(
        "tool.files",
        D::Other,
        &[
            "{eisdir|enotdir|eexist|enotempty|enametoolong|eloop} @tool",
            "{is a directory|not a directory|file exists|directory not empty|already exists} @tool",
        ],
    ),
    invalid(
        "tool.repository",
        D::Other,
        &[
            "{would be overwritten by|non fast forward|no commits between|unrelated histories|nothing to commit} @tool",
            "merge conflict* @tool",
        ],
    ),
    invalid(
        "tool.page",
        D::Other,
        &[
            "{ref|element|reference} .. not found in .. {snapshot|page} @tool",
            "{strict mode violation|resolved to # elements|handle the modal state|stale element reference} @tool",
            "element {click intercepted|not interactable|is not visible|is not attached|is outside|is not editable|is not enabled} !timeout !timed out @tool",
        ],
    ),
    invalid(
        "tool.query",
        D::Other,
        &[
            "{sql syntax|syntax error at or near|sql compilation error|e11000|unique constraint|constraint failed|duplicate key|duplicate entry|null value in column} !not authorized @tool",
            "violates .. constraint @tool",
            "column .. does not exist @tool",
            "{unknown|no such|ambiguous|invalid} column @tool",
            "error in the jql query @tool",
            "field .. does not exist @tool",
            "{mapper|mapping} {parser |parsing |}exception @tool",
            "{cypher|sql|jql|cql|sparql|promql|kql|lucene|xpath|regex|cron|query|expression} syntax error @tool",
            "invalid {cron|date|time|datetime|timestamp|timezone|regex|regular expression|xpath|selector|uuid|email|phone} {expression|format|pattern|string|value|address|number|range|syntax} @tool",
            "length {should|must} be {less than |at most |no more than |under |}{or equal to |}# !range of input length @tool",
            "{must|should} be {less than|at most|no more than|shorter than|under|up to} # characters @tool",
            "must contain at most # {character|characters|item|items|element|elements} @tool",
            "{invalid|malformed|bad|unsupported} url @tool",
            "{url|urls} must {start|begin|be|use} @tool",
            "must be in the {future|past} @tool",
            "field .. cannot be set @tool",
            "operation .. not valid for the current state @tool",
            "{type|priority|date|selector|option|assignee} {selected |specified |provided |given |}is {invalid|not valid|unknown} !token !key @tool",
        ],
    ),
    rule(
        "tool.lost",
        C::Network,
        &[
            "server closed the connection @tool",
            "{failed|unable|could not|couldnt} {to |}reconnect !status code !not found !unauthorized !authenticat* @tool",
            "{terminating connection due to|lost connection to|server has gone away} @tool",
        ],
    ),
    rule(
        "tool.busy",
        C::Overloaded,
        &[
            "{too many clients|remaining connection slots|database is locked|database table is locked|database system is starting|loading the dataset|circuit breaking exception|rejected execution} @tool",
        ],
    ),
    rule("tool.quota", C::QuotaExceeded, &["exceeded quota for free @tool"]),
    // Two transactions in each other's way: one of them may come again.
    rule(
        "tool.deadlock",
        C::ServerError,
        &["{deadlock detected|deadlock found|could not serialize access|write conflict} @tool"],
    )
    .retry(true),
    // The tool's own program broke.
    rule(
        "tool.broken",
        C::ServerError,
        &[
            "{list index out of range|index error|zero division error|division by zero|none type object|object has no attribute|nil pointer dereference|is not a function|is not iterable|not subscriptable|unbound local error|cannot read properties of} !argument !arguments !choices !json @tool",
            "{enospc|no space left on device|disk quota exceeded} @tool",
            "command failed .. exit code @tool",
        ],
    )
    .retry(false),
];
