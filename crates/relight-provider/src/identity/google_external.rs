//! Workload identity federation of Google (RFC 8693): a token of another identity provider becomes
//! one of Google, and that, if the file says so, one of a service account.

use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    IdentityError, IdentityToken,
    exchange::{self, ExchangeWay, TokenExchange, text},
    refused,
};
use crate::domain::clock;

/// Scope of all of Google's cloud.
pub(super) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Exchanges a token by the credentials of a file.
pub(super) async fn token(
    exchange: &TokenExchange,
    file: &Value,
    scope: &str,
) -> Result<IdentityToken, IdentityError> {
    let subject = subject(exchange, &file["credential_source"]).await?;
    let impersonates = file["service_account_impersonation_url"].is_string();
    let fields = [
        ("grant_type", TOKEN_EXCHANGE),
        ("audience", text(file, "audience")?),
        ("scope", if impersonates { SCOPE } else { scope }),
        ("requested_token_type", ACCESS_TOKEN),
        ("subject_token", &subject),
        ("subject_token_type", text(file, "subject_token_type")?),
    ];
    let url = text(file, "token_url")?;
    let document = exchange.form(url, &[], &fields).await?.json(url)?;
    let federated = exchange::bearer(&document)?;
    if impersonates {
        impersonated(exchange, file, &federated, scope).await
    } else {
        Ok(federated)
    }
}

/// Exchanges a token for one of the service account that the file names.
pub(super) async fn impersonated(
    exchange: &TokenExchange,
    file: &Value,
    source: &IdentityToken,
    scope: &str,
) -> Result<IdentityToken, IdentityError> {
    let url = text(file, "service_account_impersonation_url")?;
    let life = &file["service_account_impersonation"]["token_lifetime_seconds"];
    let life = exchange::seconds(life).unwrap_or(3600);
    let mut body = json!({"scope": [scope], "lifetime": format!("{life}s")});
    if file["delegates"].is_array() {
        body["delegates"] = file["delegates"].clone();
    }
    let proof = source.header().and_then(|value| value.to_str().ok());
    let headers = [
        ("authorization", proof.unwrap_or_default()),
        ("content-type", "application/json"),
    ];
    let reply = exchange
        .send(
            ExchangeWay::Service,
            (Method::POST, url),
            &headers,
            body.to_string(),
        )
        .await?;
    let document = reply.json(url)?;
    let end: Timestamp = text(&document, "expireTime")?
        .parse()
        .map_err(|_| refused("`expireTime` is no time"))?;
    let left = Duration::try_from(end.duration_since(clock::wall_now())).unwrap_or_default();
    IdentityToken::bearer(text(&document, "accessToken")?, left)
}

/// Gets the token of the other identity provider, which may have been replaced since the last time.
async fn subject(exchange: &TokenExchange, source: &Value) -> Result<String, IdentityError> {
    let contents = if let Some(path) = source["file"].as_str() {
        exchange::file(path).await?
    } else if let Some(url) = source["url"].as_str() {
        let given = source["headers"].as_object().into_iter().flatten();
        let headers: Vec<(&str, &str)> = given
            .filter_map(|(name, value)| Some((name.as_str(), value.as_str()?)))
            .collect();
        exchange
            .send(
                ExchangeWay::Metadata,
                (Method::GET, url),
                &headers,
                String::new(),
            )
            .await?
            .success(url)?
    } else {
        return Err(refused(
            "`credential_source` is neither a file nor a URL; others (`executable`, `environment_id`) are not known here",
        ));
    };
    if source["format"]["type"] != "json" {
        return Ok(contents.trim().to_owned());
    }
    let document: Value = serde_json::from_str(&contents)
        .map_err(|_| refused("the token of `credential_source` is no JSON"))?;
    let field = text(&source["format"], "subject_token_field_name")?;
    text(&document, field).map(str::to_owned)
}
