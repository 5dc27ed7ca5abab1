//! Stand-ins of the clouds' metadata and token services on one port, and of a provider that takes
//! the tokens that they handed out and that have not ended.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse as _, Response},
};
use jiff::Timestamp;
use relight::internals::domain::clock::wall_now;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A request that a stand-in got.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

/// The stand-ins.
#[derive(Clone)]
pub(super) struct Clouds {
    pub(super) url: String,
    state: Arc<Mutex<State>>,
}

struct State {
    /// Life of what is handed out.
    life: Duration,
    /// Status with which this many of the next exchanges are refused.
    refusing: (usize, u16),
    /// What was handed out, and when it ends.
    handed_out: HashMap<String, Timestamp>,
    exchanges: Vec<Asked>,
    calls: Vec<Asked>,
}

// === impl Asked ===

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// A field of a form.
    pub(super) fn field(&self, name: &str) -> Option<String> {
        let pairs = self.body.split('&').filter_map(|pair| pair.split_once('='));
        let value = pairs.into_iter().find(|(known, _)| *known == name)?.1;
        let mut bytes = Vec::new();
        let mut rest = value.bytes();
        while let Some(byte) = rest.next() {
            if byte == b'%' {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                let digits = std::str::from_utf8(&digits).unwrap();
                bytes.push(u8::from_str_radix(digits, 16).unwrap());
            } else {
                bytes.push(byte);
            }
        }
        Some(String::from_utf8(bytes).unwrap())
    }
}

// === impl Clouds ===

impl Clouds {
    #[expect(clippy::disallowed_methods, reason = "the stand-ins end with the test")]
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = State {
            life: Duration::from_hours(1),
            refusing: (0, 200),
            handed_out: HashMap::new(),
            exchanges: Vec::new(),
            calls: Vec::new(),
        };
        let clouds = Self {
            url,
            state: Arc::new(Mutex::new(state)),
        };
        let answering = clouds.clone();
        let serve = async move |method: Method, uri: Uri, headers: HeaderMap, body: Bytes| {
            let asked = Asked {
                method,
                path: uri.path().to_owned(),
                query: uri.query().unwrap_or_default().to_owned(),
                headers,
                body: String::from_utf8(body.to_vec()).unwrap(),
            };
            answering.answer(&asked)
        };
        tokio::spawn(async move {
            axum::serve(listener, Router::new().fallback(serve))
                .await
                .unwrap();
        });
        clouds
    }

    /// Gives what is handed out from now on this life.
    pub(super) fn live_for(&self, life: Duration) {
        self.state.lock().unwrap().life = life;
    }

    /// Refuses so many of the next exchanges.
    pub(super) fn refuse(&self, count: usize, status: u16) {
        self.state.lock().unwrap().refusing = (count, status);
    }

    /// Ends all that was handed out so far.
    pub(super) fn revoke(&self) {
        self.state.lock().unwrap().handed_out.clear();
    }

    /// The exchanges so far.
    pub(super) fn exchanges(&self) -> Vec<Asked> {
        self.state.lock().unwrap().exchanges.clone()
    }

    /// The calls of models so far.
    pub(super) fn calls(&self) -> Vec<Asked> {
        self.state.lock().unwrap().calls.clone()
    }

    fn answer(&self, asked: &Asked) -> Response {
        let mut state = self.state.lock().unwrap();
        if asked.path.starts_with("/provider") {
            state.calls.push(asked.clone());
            return state.call(asked);
        }
        state.exchanges.push(asked.clone());
        if state.refusing.0 > 0 {
            state.refusing.0 -= 1;
            let status = StatusCode::from_u16(state.refusing.1).unwrap();
            let error = json!({"error": "refused", "error_description": "not now"});
            return (status, error.to_string()).into_response();
        }
        state.exchange(asked)
    }
}

// === impl State ===

impl State {
    /// Hands out a new name that is known for its life.
    fn hand_out(&mut self, kind: &str) -> (String, Timestamp) {
        let ends_at = wall_now().checked_add(self.life).unwrap();
        let name = format!("{kind}{}", self.exchanges.len());
        self.handed_out.insert(name.clone(), ends_at);
        (name, ends_at)
    }

    fn call(&self, asked: &Asked) -> Response {
        let proof = asked.header("authorization");
        let name = match proof.split_once("Credential=") {
            Some((_, rest)) => rest.split('/').next().unwrap(),
            None => proof.strip_prefix("Bearer ").unwrap_or_default(),
        };
        let is_good = self
            .handed_out
            .get(name)
            .is_some_and(|end| *end > wall_now());
        if !is_good && name != "AKIAENV" {
            let kind = [("x-amzn-errortype", "ExpiredTokenException")];
            let status = if asked.path.contains("/converse") {
                403
            } else {
                401
            };
            let status = StatusCode::from_u16(status).unwrap();
            return (status, kind, "{\"message\":\"the token ended\"}").into_response();
        }
        let document = if asked.path.contains("/converse") {
            json!({
                "output": {"message": {"role": "assistant", "content": [{"text": "Ok"}]}}, "stopReason": "end_turn",
                "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
            })
        } else if asked.path.contains(":generateContent") {
            json!({"candidates": [{"content": {"role": "model", "parts": [{"text": "Ok"}]}, "finishReason": "STOP"}]})
        } else {
            json!({
                "id": "c", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Ok"}, "finish_reason": "stop"}],
            })
        };
        let kind = [("content-type", "application/json")];
        (kind, document.to_string()).into_response()
    }

    fn exchange(&mut self, asked: &Asked) -> Response {
        let seconds = self.life.as_secs();
        let oauth = |(token, _): (String, Timestamp)| json!({"access_token": token, "expires_in": seconds, "token_type": "Bearer"});
        let document = match (asked.method.as_str(), asked.path.as_str()) {
            ("PUT", "/latest/api/token") => {
                let life = asked.header("x-aws-ec2-metadata-token-ttl-seconds");
                assert!(life.parse::<u64>().unwrap() <= 21_600, "{asked:?}");
                return "session".into_response();
            }
            ("GET", path) if path.starts_with("/latest/meta-data/") => {
                if asked.header("x-aws-ec2-metadata-token") != "session" {
                    return StatusCode::UNAUTHORIZED.into_response();
                }
                if path.ends_with("/security-credentials/") {
                    return "the-role".into_response();
                }
                assert!(path.ends_with("/the-role"), "{path}");
                self.aws_document()
            }
            ("GET", "/container") if asked.header("authorization") == "of-the-pod" => {
                self.aws_document()
            }
            ("POST", "/") => return self.sts(asked),
            ("GET", "/computeMetadata/v1/instance/service-accounts/default/token")
                if asked.header("metadata-flavor") == "Google" =>
            {
                oauth(self.hand_out("gce"))
            }
            ("POST", "/token") => oauth(self.hand_out(&asked.field("grant_type").unwrap()[..3])),
            ("GET", "/subject") if asked.header("x-given") == "yes" => {
                json!({"value": "subject-token"})
            }
            ("POST", "/sts/v1/token") => {
                assert_eq!(
                    asked.field("subject_token").as_deref(),
                    Some("subject-token")
                );
                oauth(self.hand_out("federated"))
            }
            ("POST", "/account:generateAccessToken")
                if asked
                    .header("authorization")
                    .starts_with("Bearer federated") =>
            {
                let (token, end) = self.hand_out("impersonated");
                json!({"accessToken": token, "expireTime": end.to_string()})
            }
            ("POST", "/the-tenant/oauth2/v2.0/token") => oauth(self.hand_out("entra")),
            ("GET", "/app-service") if asked.header("x-identity-header") == "of-the-app" => {
                let (token, end) = self.hand_out("app");
                json!({"access_token": token, "expires_on": end.as_second().to_string()})
            }
            ("GET", "/metadata/identity/oauth2/token") if asked.header("metadata") == "true" => {
                let (token, _) = self.hand_out("machine");
                json!({"access_token": token, "expires_in": seconds.to_string()})
            }
            _ => return StatusCode::FORBIDDEN.into_response(),
        };
        document.to_string().into_response()
    }

    fn aws_document(&mut self) -> Value {
        let (id, end) = self.hand_out("ASIA");
        json!({
            "Code": "Success", "AccessKeyId": id, "SecretAccessKey": "secret", "Token": "session-token",
            "Expiration": end.to_string(),
        })
    }

    fn sts(&mut self, asked: &Asked) -> Response {
        let action = asked.field("Action").unwrap();
        let is_known = match action.as_str() {
            "AssumeRoleWithWebIdentity" => {
                asked.field("WebIdentityToken").as_deref() == Some("of-the-pod")
            }
            _ => asked
                .header("authorization")
                .contains("Credential=AKIABASE/"),
        };
        if !is_known || asked.field("RoleArn").as_deref() != Some("arn:aws:iam::1:role/r") {
            let error = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no such role</Message></Error></ErrorResponse>";
            return (StatusCode::FORBIDDEN, error).into_response();
        }
        let (id, end) = self.hand_out("ASIA");
        let keys = format!(
            "<{action}Response><{action}Result><Credentials><AccessKeyId>{id}</AccessKeyId><SecretAccessKey>secret\
             </SecretAccessKey><SessionToken>session-token</SessionToken><Expiration>{end}</Expiration></Credentials>\
             </{action}Result></{action}Response>"
        );
        keys.into_response()
    }
}
