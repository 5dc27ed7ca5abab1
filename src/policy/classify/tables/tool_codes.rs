//! Documented codes of agents' tools: JSON-RPC and MCP, `OAuth`, chat, documents, sales, search, maps, databases, browsers.

use crate::{
    domain::failure::{FailureClass as C, InvalidRequestDetail as D},
    policy::classify::rule::{Rule, invalid, numbered, rule},
};

/// In order.
pub(super) const RULES: &[Rule] = &[
    // JSON-RPC and MCP: the words come first, the number decides where there are none.
    rule(
        "mcp.not_found",
        C::NotFound,
        &["@num:32601", "@num:32002", "unknown tool !code unknown", "tool .. not found @tool", "method not found"],
    ),
    rule("mcp.timeout", C::Timeout, &["@num:32001 & timed out", "@num:32001 & timeout"]),
    rule("mcp.authentication", C::Authentication, &["=unauthorized & @num:32000", "@num:32001 & unauthorized"]),
    rule(
        "mcp.output",
        C::MalformedResponse,
        &["output validation error", "{no|invalid} structured content", "structured content {does not|doesnt} match"],
    )
    .fallback(false),
    rule("mcp.disabled", C::PermissionDenied, &["tool .. disabled & @num:32602"]),
    rule("mcp.host", C::PermissionDenied, &["invalid {host|origin} & @num:32000", "invalid {host|origin} header"]),
    invalid(
        "mcp.session",
        D::Other,
        &[
            "bad request {server not initialized|no valid session*|mcp session id}",
            "{before initialization was complete|server already initialized|not acceptable client must accept}",
        ],
    ),
    invalid("mcp.invalid_type", D::BadSchema, &["invalid type & @num:32602", "expected .. received & @num:32602"]),
    invalid("mcp.invalid_params", D::ParameterMismatch, &["@num:32602"]),
    // A request that may not be made is no malformed one.
    rule(
        "jsonrpc.scope",
        C::PermissionDenied,
        &["@num:32600 & {insufficient scope|missing scope|missing scopes|forbidden|permission denied}"],
    ),
    rule(
        "jsonrpc.token",
        C::Authentication,
        &["@num:32600 & {unauthorized|unauthenticated|access token|bearer token|invalid token}"],
    ),
    invalid("jsonrpc.parse", D::BadSchema, &["@num:32700", "@num:32600"]),
    rule("lsp.cancelled", C::Cancelled, numbered!("": 32800)),
    // OAuth.
    rule(
        "oauth.refused",
        C::Authentication,
        &[
            "={invalid grant|invalid client|unauthorized client|expired token|interaction required|consent required|login required}",
            "=invalid session id",
            "=invalid login",
            "={expired|invalid} authentication",
            "=authentication required",
        ],
    ),
    rule("oauth.scope", C::PermissionDenied, &["={insufficient scope|insufficient scopes|missing scopes}"]),
    invalid("oauth.grant", D::Other, &["=unsupported {grant|response} type", "=invalid scope"]),
    // Slack.
    rule("slack.auth", C::Authentication, &["={not authed|invalid auth|token revoked|token expired}"]),
    rule(
        "slack.permission",
        C::PermissionDenied,
        &[
            "=account inactive",
            "=no permission",
            "=not allowed token type",
            "={ekm access denied|enterprise is restricted|team access not granted|org login required}",
            "=not in channel",
            "restricted action",
            "=cant {update|delete} message",
            "={paid|free} {teams|team} {only|not allowed}",
        ],
    ),
    rule("slack.not_found", C::NotFound, &["=file deleted", "={method deprecated|deprecated endpoint}"]),
    rule("slack.length", C::ContextLength, &["=msg too long"]),
    invalid(
        "slack.schema",
        D::BadSchema,
        &[
            "=invalid {blocks|blocks format|arguments|arg name|array arg|form data|post type|charset}",
            "=missing {post type|charset|version}",
            "=json not object",
        ],
    ),
    invalid(
        "slack.request",
        D::Other,
        &["={is archived|no text|too many attachments|invalid cursor|invalid types|already reacted}"],
    ),
    // GitHub.
    rule(
        "github.secondary",
        C::RateLimited,
        &["triggered an abuse detection mechanism", "secondary rate limit", "api rate limit exceeded for"],
    ),
    rule(
        "github.permission",
        C::PermissionDenied,
        &[
            "resource not accessible by",
            "protected by organization saml",
            "must have {admin|push|write} {rights|access}",
        ],
    ),
    // Notion, Airtable, HubSpot, Salesforce, Linear, Stripe, Microsoft Graph.
    rule(
        "tools.permission",
        C::PermissionDenied,
        &[
            "=restricted resource",
            "invalid permissions or model not found",
            "=invalid permissions",
            "=api {disabled for org|currently disabled}",
            "=insufficient access",
            "insufficient access on cross reference",
            "=feature not accessible",
            "=option not in plan",
            "=resource not allowed",
            "=permission missing",
        ],
    ),
    rule("tools.not_found", C::NotFound, &["=resource missing", "=row does not exist", "=item not found"]),
    rule(
        "tools.quota",
        C::QuotaExceeded,
        &[
            "=public api billing limit exceeded",
            "=usage cap exceeded",
            "=no more credits",
            "=api key budget exceeded",
            "=quota {limited|limit reached}",
            "=over daily limit",
            "=usage limit exceeded",
        ],
    ),
    rule(
        "tools.rate",
        C::RateLimited,
        &[
            "=activity limit reached",
            "=application throttled",
            "=over query limit !daily",
            "={mailbox|application} concurrency",
        ],
    ),
    rule("tools.server", C::ServerError, &["=unable to lock row", "=scrape all engines failed"]),
    rule("tools.network", C::Network, &["=scrape {ssl|dns resolution} error"]),
    rule("tools.key", C::Authentication, &["=subscription token invalid"]),
    invalid(
        "graphql.request",
        D::BadSchema,
        &["graphql {validation|parse} failed", "=bad user input", "={parameter|parameters} missing"],
    ),
    invalid("stripe.unknown", D::UnsupportedParameter, &["=parameter unknown"]),
    invalid(
        "tools.query",
        D::Other,
        &[
            "=malformed query",
            "=invalid {field|field value|column|request url}",
            "=max {elements|waypoints|node limit} exceeded",
        ],
    ),
    // Databases: SQLSTATE, PostgREST, MySQL.
    rule("sql.auth", C::Authentication, &["{pgrst301|pgrst302}", "er access denied error", "er accessdenied error"]),
    rule("sql.permission", C::PermissionDenied, numbered!("": 42501)),
    rule("sql.busy", C::Overloaded, numbered!("": 53300; also "er con count error")),
    rule("sql.not_found", C::NotFound, &["er no such table"]),
    rule("sql.lost", C::Network, &["protocol connection lost"]),
    // Browsers: the page's own process, the address, the rules.
    rule(
        "browser.gone",
        C::Crash,
        &[
            "target page context or browser has been closed",
            "target closed",
            "{page|tab|renderer|target} crashed",
            "{browser has|browser was} {been closed|disconnected|closed}",
            "session closed most likely the page has been closed",
            "invalid session id & {driver|selenium|exception}",
            "err out of memory",
        ],
    ),
    rule(
        "browser.missing",
        C::Configuration,
        &[
            "browser type launch executable doesnt exist",
            "executable doesnt exist at",
            "could not find {chrome|chromium|browser|firefox}",
            "session not created",
            "failed to launch the browser",
        ],
    ),
    rule(
        "browser.blocked",
        C::PermissionDenied,
        &["err blocked by {client|administrator|response|csp|orb}", "err access denied", "err unsafe port"],
    ),
    rule("browser.network", C::Network, &["net err {empty response|network access denied|dns timed out}"]),
    rule("browser.file", C::NotFound, &["err file not found"]),
];
