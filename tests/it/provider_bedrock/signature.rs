//! The signature that AWS would compute for a request as it came: written from its documentation,
//! apart from the client's.

use ring::{digest, hmac};

use crate::support::upstream::Request;

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.concat()
}

/// The signature of a request with a session token, whose path holds nothing to encode but `%`.
pub(super) fn of(request: &Request, secret: &str, region: &str) -> String {
    let date = request.header("x-amz-date").unwrap_or_default();
    let names = ["host", "x-amz-date", "x-amz-security-token"];
    let lines = names
        .map(|name| format!("{name}:{}\n", request.header(name).unwrap_or_default()))
        .concat();
    let hashed = |text: &str| hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref());
    let path = request.path.replace('%', "%25");
    let canonical = format!(
        "POST\n{path}\n\n{lines}\n{}\n{}",
        names.join(";"),
        hashed(&request.body.to_string())
    );
    let scope = [&date[..8], region, "bedrock", "aws4_request"];
    let to_sign = format!(
        "AWS4-HMAC-SHA256\n{date}\n{}\n{}",
        scope.join("/"),
        hashed(&canonical)
    );
    let mut key = format!("AWS4{secret}").into_bytes();
    for step in scope.into_iter().chain([to_sign.as_str()]) {
        key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), step.as_bytes())
            .as_ref()
            .to_vec();
    }
    hex(&key)
}
