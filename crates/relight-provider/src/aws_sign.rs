//! AWS Signature Version 4 for one POST of a complete body.
//!
//! Own code because the crate for it brings a dozen others, and this service needs one kind of
//! request of one service; it is tested with the published vectors. It signs the host, the date and
//! the session token only.

use std::fmt;

use jiff::Timestamp;
use ring::{digest, hmac};
use secrecy::{ExposeSecret as _, SecretString};

use crate::domain::fold::hex;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// AWS keys; they are not printed.
pub(super) struct AwsKeys {
    access_key_id: String,
    secret_access_key: SecretString,
    session_token: Option<SecretString>,
}

/// The input of a signature.
#[derive(Debug)]
pub(super) struct Unsigned<'a> {
    /// As in the `host` header.
    pub(super) host: &'a str,
    /// As it is sent, percent-encoded.
    pub(super) path: &'a str,
    /// The whole body.
    pub(super) body: &'a [u8],
    /// The region.
    pub(super) region: &'a str,
    /// The service's name for signatures.
    pub(super) service: &'a str,
}

// === impl AwsKeys ===

impl AwsKeys {
    /// Reads `{access key id}:{secret access key}[:{session token}]`; `None` if there is no colon.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (access_key_id, rest) = text.trim().split_once(':')?;
        let (secret, token) = rest
            .split_once(':')
            .map_or((rest, None), |(secret, token)| (secret, Some(token)));
        let session_token = token
            .filter(|token| !token.is_empty())
            .map(SecretString::from);
        let access_key_id = access_key_id.to_owned();
        Some(Self {
            access_key_id,
            secret_access_key: SecretString::from(secret),
            session_token,
        })
    }
}

impl fmt::Debug for AwsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsKeys").finish_non_exhaustive()
    }
}

/// Returns the headers that sign the request at that time.
pub(super) fn headers(
    request: &Unsigned<'_>,
    keys: &AwsKeys,
    at: Timestamp,
) -> Vec<(&'static str, String)> {
    let date = at.strftime("%Y%m%dT%H%M%SZ").to_string();
    let day = &date[..8];
    // In the order of their names, as the signature wants them.
    let mut signed = vec![
        ("host", request.host.to_owned()),
        ("x-amz-date", date.clone()),
    ];
    if let Some(token) = &keys.session_token {
        signed.push(("x-amz-security-token", token.expose_secret().to_owned()));
    }
    let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");
    let lines: Vec<String> = signed
        .iter()
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    let lines = lines.concat();
    // Every service but S3 wants the path encoded once more.
    let path = encoded(
        if request.path.is_empty() {
            "/"
        } else {
            request.path
        },
        true,
    );
    let canonical = format!("POST\n{path}\n\n{lines}\n{names}\n{}", hash(request.body));
    let scope = format!("{day}/{}/{}/aws4_request", request.region, request.service);
    let to_sign = format!(
        "{ALGORITHM}\n{date}\n{scope}\n{}",
        hash(canonical.as_bytes())
    );
    let secret = format!("AWS4{}", keys.secret_access_key.expose_secret());
    let steps = [
        day,
        request.region,
        request.service,
        "aws4_request",
        &to_sign,
    ];
    let signature = steps.iter().fold(secret.into_bytes(), |key, step| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), step.as_bytes())
            .as_ref()
            .to_vec()
    });
    let credential = format!("{}/{scope}", keys.access_key_id);
    let signature = hex(&signature);
    let authorization = format!(
        "{ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={signature}"
    );
    // HTTP sends the host by itself.
    signed
        .into_iter()
        .skip(1)
        .chain([("authorization", authorization)])
        .collect()
}

/// Returns a text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    encoded(text, false)
}

fn encoded(text: &str, keeps_slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let is_kept = byte.is_ascii_alphanumeric()
            || b"-._~".contains(&byte)
            || (keeps_slashes && byte == b'/');
        if is_kept {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&hex(&[byte]).to_ascii_uppercase());
        }
    }
    out
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: &str = "AKIDEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn authorization(request: &Unsigned<'_>, keys: &str) -> String {
        let at: Timestamp = "2015-08-30T12:36:00Z".parse().unwrap();
        let headers = headers(request, &AwsKeys::parse(keys).unwrap(), at);
        headers
            .into_iter()
            .find(|(name, _)| *name == "authorization")
            .unwrap()
            .1
    }

    #[test]
    fn the_published_vectors_are_met() {
        let request = Unsigned {
            host: "example.amazonaws.com",
            path: "/",
            body: b"",
            region: "us-east-1",
            service: "service",
        };
        let vanilla = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
            SignedHeaders=host;x-amz-date, \
            Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b";
        assert_eq!(authorization(&request, PAIR), vanilla);
        let with_token = authorization(&request, &format!("{PAIR}:{TOKEN}"));
        let signature = "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead";
        assert!(with_token.ends_with(signature), "{with_token}");
        assert!(with_token.contains("SignedHeaders=host;x-amz-date;x-amz-security-token,"));
    }

    #[test]
    fn the_path_of_a_model_is_encoded_twice_for_the_signature() {
        let path = format!(
            "/model/{}/converse-stream",
            segment("anthropic.claude-test-v1:0")
        );
        assert_eq!(path, "/model/anthropic.claude-test-v1%3A0/converse-stream");
        let request = Unsigned {
            host: "bedrock-runtime.eu-west-1.amazonaws.com",
            path: &path,
            body: b"{\"messages\":[]}",
            region: "eu-west-1",
            service: "bedrock",
        };
        let signature = "37ee72a8bb2232783ab5868b685689799259b8d111c8eb5032e9ff680fa1f634";
        assert!(authorization(&request, PAIR).ends_with(signature));
        assert_eq!(
            segment("arn:aws:bedrock:eu:1:x/y"),
            "arn%3Aaws%3Abedrock%3Aeu%3A1%3Ax%2Fy"
        );
    }

    #[test]
    fn a_key_without_a_colon_is_no_pair_and_a_pair_is_never_printed() {
        assert!(AwsKeys::parse("ABSKQmVkcm9jaw==").is_none());
        assert_eq!(
            format!("{:?}", AwsKeys::parse(PAIR).unwrap()),
            "AwsKeys { .. }"
        );
    }
}
