//! Configurations of one target and of two.

use crate::support::upstream::Upstream;

/// Short waits, one target.
pub(crate) fn one_target(upstream: &Upstream) -> String {
    format!(
        r#"
providers: {{ model: {{ dialect: openai_chat, base_url: "{}", api_key: k }} }}
targets: {{ main: {{ provider: model, model: m-1 }} }}
routes: {{ default: {{ targets: [main], deadline: 20s }} }}
timers: {{ first_token: 400ms, first_token_alone: 400ms, soft_first_token: 0ms, idle: 400ms }}
policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }} }} }} }}
"#,
        upstream.base_url()
    )
}

/// Short waits, two targets on two upstreams.
pub(crate) fn two_targets(first: &Upstream, second: &Upstream) -> String {
    format!(
        r#"
providers:
  a: {{ dialect: openai_chat, base_url: "{}", api_key: k }}
  b: {{ dialect: openai_chat, base_url: "{}", api_key: k }}
targets: {{ first: {{ provider: a, model: m-a }}, second: {{ provider: b, model: m-b }} }}
routes: {{ default: {{ targets: [first, second], deadline: 20s }} }}
timers: {{ first_token: 400ms, first_token_alone: 400ms, soft_first_token: 300ms, idle: 400ms }}
policies: {{ standard: {{ retry: {{ backoff: {{ base: 10ms, cap: 40ms }} }} }} }}
"#,
        first.base_url(),
        second.base_url()
    )
}
