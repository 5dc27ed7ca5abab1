//! Tests of the table of errors.

use std::{collections::HashSet, fmt::Write as _};

use super::{
    table::{
        INVALID_REQUEST, MODEL_NOT_FOUND, PATH_NOT_FOUND, ROUTE_NOT_FOUND, SHED, TABLE, of_failure,
    },
    *,
};

#[test]
fn a_text_has_what_the_place_that_refuses_filled_in() {
    let missing = CallError::not_found(MODEL_NOT_FOUND, "gtp", Some("gpt"));
    assert_eq!(
        missing.to_string(),
        "the model `gtp` does not exist: a model is a route of this server; did you mean `gpt`?"
    );
    // A caller's text is not a template.
    let odd = CallError::not_found(ROUTE_NOT_FOUND, "{hint}{x}", None);
    assert_eq!(odd.to_string(), "there is no route `{hint}{x}`");
    let path = CallError::new(PATH_NOT_FOUND).to_string();
    assert!(path.contains("GET /v1/responses/{id},"), "{path}");
}

#[test]
fn a_param_is_the_field_at_fault() {
    let mut faults = Violations::of("a", "is empty");
    faults.add("b", "is empty");
    let error = CallError::from(faults);
    assert!(error.is(INVALID_REQUEST));
    assert_eq!(error.param(), Some("a"));
    assert_eq!(CallError::invalid("n", "`n` is 0").param(), Some("n"));
    let missing = CallError::not_found(ROUTE_NOT_FOUND, "x", None);
    assert_eq!(missing.param(), Some("model"));
}

#[test]
fn a_name_is_one_row_s_and_a_code_has_one_status() {
    let names: HashSet<&str> = TABLE.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), TABLE.len());
    for row in TABLE {
        let name = row.name;
        let word = row.code;
        assert!(
            word.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{name}: {word}"
        );
        let other = TABLE
            .iter()
            .find(|other| other.code == row.code && other.http != row.http);
        assert!(
            other.is_none(),
            "{name}: {word} has two statuses: {other:?}"
        );
        assert!((400..600).contains(&row.http), "{name}");
        assert_eq!(
            row.retry_ms.is_some(),
            matches!(row.http, 429 | 503) && row.name != "CUT_OFF" || row.name == "THREAD_BUSY",
            "{name}: what may be repeated says when"
        );
    }
}

#[test]
fn work_that_is_shed_has_one_row_as_a_refusal_and_as_a_failure() {
    let failure = Failure::local(FailureClass::Shed, "all slots are taken");
    let error = CallError::from(&failure);
    assert!(error.is(SHED));
    assert_eq!(
        error.to_string(),
        "too much work at once: all slots are taken"
    );
}

/// Returns the page's tables, as they should be.
fn tables() -> String {
    let retry = |row: &ErrorRow| match row.retry_ms {
        Some(wait) => format!("after {wait} ms"),
        None => "no".to_owned(),
    };
    let mut text = "| reason (gRPC) | gRPC code | HTTP status | `code` | `type` of OpenAI | \
                    `type` of Anthropic | MCP | retry | text |\n|---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for row in TABLE {
        writeln!(
            text,
            "| `{}` | {:?} | {} | `{}` | `{}` | `{}` | {} | {} | {} |",
            row.reason,
            row.grpc,
            row.http,
            row.code,
            row.openai,
            row.anthropic,
            row.rpc,
            retry(row),
            row.text.replace('|', "\\|"),
        )
        .unwrap();
    }
    text += "\n## A failed invocation over HTTP\n\n| class | HTTP status | `code` | `type` of OpenAI | \
             `type` of Anthropic |\n|---|---|---|---|---|\n";
    for class in FailureClass::ALL {
        let row = of_failure(class);
        writeln!(
            text,
            "| `{}` | {} | `{}` | `{}` | `{}` |",
            class.as_str(),
            row.http,
            row.code,
            row.openai,
            row.anthropic,
        )
        .unwrap();
    }
    text
}

#[test]
fn the_page_shows_the_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/errors.md");
    let written = std::fs::read_to_string(page).unwrap();
    let tables = tables();
    assert!(
        written.contains(&tables),
        "docs/errors.md should hold:\n{tables}"
    );
}
