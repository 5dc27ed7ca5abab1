//! Failures with bodies of 2 KiB, of seven kinds: what the classifier is measured on.

use relight::internals::domain::failure::{ProviderError, Surface};

/// Bytes of each body.
const BYTES: usize = 2048;

/// One failure of each kind.
pub(crate) fn failures() -> impl Iterator<Item = (&'static str, ProviderError)> {
    bodies().into_iter().map(|(kind, status, mut body)| {
        assert!(body.len() >= BYTES, "{kind}: {} bytes", body.len());
        body.truncate(body.floor_char_boundary(BYTES));
        let failure = ProviderError {
            provider: "example".into(),
            surface: Surface::Http,
            status: Some(status),
            body: Some(body),
            ..ProviderError::default()
        };
        (kind, failure)
    })
}

/// Bodies of no less than that, with the status of each.
fn bodies() -> [(&'static str, u16, String); 7] {
    let detail = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"SOME_REASON","domain":"example.com",
        "metadata":{"service":"models.example.com","consumer":"projects/12345","note":"nothing in particular"}}"#;
    let details = [detail; 10].join(",");
    let violation = r#"{"quotaMetric":"example.com/generate_content_requests","quotaId":"RequestsPerMinutePerProject",
        "quotaDimensions":{"location":"global","model":"example-pro"},"quotaValue":"5"}"#;
    let violations = [violation; 11].join(",");
    let limit = "You exceeded your current quota, please check your plan. Please retry in 21.5s.";
    let prose = "The engine is currently overloaded, please try again later. ".repeat(35);
    let row = r#"<div class="relative w-1/3 m-auto"><span class="icon block w-24"></span><p>The web server reported a bad
        gateway error. Please try again in a few minutes.</p></div>"#;
    let unknown = "the voice that you asked for cannot sing this song in the way that your friends have heard it before; ";
    let frame = r#"  File "/app/.venv/lib/python3.11/site-packages/example/_base_client.py", line 1058, in _request
    raise self._make_status_error_from_response(err.response) from None
  File "/app/agent/steps.py", line 210, in run_step
    result = await self.client.chat.completions.create(model=self.model, messages=messages, tools=tools)
"#;
    let frames = format!("Traceback (most recent call last):\n{}", frame.repeat(2));
    let cause = "example.APIStatusError: Error code: 529 - {'error': {'type': 'overloaded_error', 'message': 'Overloaded'}}";
    let chained = "\n\nDuring handling of the above exception, another exception occurred:\n\n";
    let traceback = [
        &*frames,
        cause,
        chained,
        &frames,
        "agent.StepFailed: ",
        cause,
        chained,
        &frames,
        cause,
    ]
    .concat();
    [
        (
            "JSON that matches no rule",
            429,
            format!(r#"{{"error":{{"code":429,"message":"?","details":[{details}]}}}}"#),
        ),
        (
            "JSON that states a limit",
            429,
            format!(
                r#"{{"error":{{"message":"{limit}","status":"RESOURCE_EXHAUSTED","violations":[{violations}]}}}}"#
            ),
        ),
        (
            "dense prose",
            503,
            format!(r#"{{"error":{{"message":"{prose}","type":"server_error"}}}}"#),
        ),
        (
            "a proxy's page",
            502,
            format!(
                "<html><title>502: Bad gateway</title><body>{}</body></html>",
                row.repeat(12)
            ),
        ),
        ("prose that matches no rule", 500, unknown.repeat(21)),
        ("a traceback", 500, traceback),
        ("a quota error of Google", 429, google()),
    ]
}

/// The answer of a service of Google's whose quotas are used up: prose, addresses, and details over
/// many lines.
fn google() -> String {
    let quotas = ["requests", "input_token_count", "output_token_count"];
    let said = quotas.map(|quota| {
        format!(
            r"\n* Quota exceeded for metric: models.example.com/generate_content_{quota}, limit: 5, model: example-pro"
        )
    });
    let violations = quotas.map(|quota| {
        format!(
            r#"
          {{
            "quotaMetric": "models.example.com/generate_content_{quota}",
            "quotaId": "GenerateContentPerMinutePerProjectPerModel-FreeTier",
            "quotaDimensions": {{
              "location": "global",
              "model": "example-pro"
            }},
            "quotaValue": "5"
          }}"#
        )
    });
    format!(
        r#"{{
  "error": {{
    "code": 429,
    "message": "You exceeded your current quota, please check your plan and billing details. For more information on this error, head to: https://example.com/docs/rate-limits.{} \nPlease retry in 21.530469617s.",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
      {{
        "@type": "type.googleapis.com/google.rpc.QuotaFailure",
        "violations": [{}
        ]
      }},
      {{
        "@type": "type.googleapis.com/google.rpc.RetryInfo",
        "retryDelay": "21s"
      }},
      {{
        "@type": "type.googleapis.com/google.rpc.Help",
        "links": [
          {{
            "description": "Learn more about quotas",
            "url": "https://example.com/docs/rate-limits"
          }}
        ]
      }}
    ]
  }}
}}
"#,
        said.concat(),
        violations.join(",")
    )
}
