//! Parses what was pasted: a body, or a whole HTTP response as `curl -i` prints it, or lines of
//! JSON.

/// An HTTP response, as far as it was pasted.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Pasted {
    /// Status, if there is a status line.
    pub(super) status: Option<u16>,
    /// Header fields, names in lower case.
    pub(super) headers: Vec<(String, String)>,
    /// The rest.
    pub(super) body: String,
}

/// Returns whether these are lines of JSON that each name a failure, not the body of one.
pub(super) fn is_jsonl(text: &str) -> bool {
    let first = text.lines().find(|line| !line.trim().is_empty());
    let item = first.and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    // A body may have an id as well; only a line of ours also has one of these.
    let ours = [
        "body", "message", "status", "headers", "surface", "provider",
    ];
    item.is_some_and(|item| {
        item["id"].is_string() && ours.iter().any(|field| item.get(field).is_some())
    })
}

// === impl Pasted ===

impl Pasted {
    /// Parses what was pasted; of several responses in a row (redirects, `100 Continue`), the last
    /// counts.
    pub(super) fn read(text: &str) -> Self {
        let mut pasted = Self {
            body: text.to_owned(),
            ..Self::default()
        };
        while let Some(answer) = Self::head(&pasted.body) {
            pasted = answer;
        }
        pasted
    }

    fn head(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let status = text
            .strip_prefix("HTTP/")?
            .split_whitespace()
            .nth(1)?
            .parse()
            .ok()?;
        let mut rest = text;
        let mut headers = Vec::new();
        let mut first = true;
        loop {
            let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
            rest = after;
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                break;
            }
            if !first && let Some((name, value)) = line.split_once(':') {
                headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
            }
            first = false;
        }
        Some(Self {
            status: Some(status),
            headers,
            body: rest.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pasted_answer_gives_its_status_headers_and_body_and_the_last_of_several_counts() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/2 429\r\nRetry-After: 2\r\n\r\n{\"error\": \"slow down\"}";
        let expected = Pasted {
            status: Some(429),
            headers: vec![("retry-after".to_owned(), "2".to_owned())],
            body: "{\"error\": \"slow down\"}".to_owned(),
        };
        assert_eq!(Pasted::read(text), expected);
    }

    #[test]
    fn a_text_that_is_no_answer_is_a_body() {
        let pasted = Pasted::read("connection reset by peer");
        assert_eq!(
            pasted,
            Pasted {
                body: "connection reset by peer".to_owned(),
                ..Pasted::default()
            }
        );
    }

    #[test]
    fn lines_of_json_are_distinguished_from_a_body_of_json() {
        assert!(is_jsonl("\n{\"id\": \"a\", \"message\": \"timed out\"}\n"));
        assert!(!is_jsonl("{\"error\": {\"message\": \"timed out\"}}"));
        assert!(!is_jsonl("{\"id\": \"chatcmpl-1\", \"choices\": []}"));
        assert!(!is_jsonl("timed out"));
    }
}
