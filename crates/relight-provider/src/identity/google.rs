//! Google: application default credentials, as its own libraries look for them: the file that
//! `GOOGLE_APPLICATION_CREDENTIALS` names, that of `gcloud`, the metadata server.

use std::time::Duration;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use ring::{rand::SystemRandom, rsa::KeyPair, signature};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};

use super::{
    IdentityError, IdentityToken,
    exchange::{self, ExchangeWay, TokenExchange, text},
    google_external::{self, SCOPE},
    refused,
};
use crate::{domain::clock, identity_spec::IdentitySpec};

const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
const METADATA: &str = "metadata.google.internal";
const ACCOUNT: &str = "computeMetadata/v1/instance/service-accounts/default/token";
const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
/// Life of a signed assertion, in seconds.
const ASSERTION_LIFE: i64 = 3600;

/// Exchanges a token.
pub(super) async fn token(
    exchange: &TokenExchange,
    spec: &IdentitySpec,
) -> Result<IdentityToken, IdentityError> {
    let scope = spec.scope.as_deref().unwrap_or(SCOPE);
    let named = spec.variables.get("GOOGLE_APPLICATION_CREDENTIALS");
    let usual = match spec.variables.get("CLOUDSDK_CONFIG") {
        Some(folder) => Some(format!("{folder}/application_default_credentials.json")),
        None => spec
            .variables
            .below_home(".config/gcloud/application_default_credentials.json"),
    };
    let contents = match (named, usual) {
        (Some(path), _) => Some(exchange::file(path).await?),
        (None, Some(path)) => tokio::fs::read_to_string(path).await.ok(),
        (None, None) => None,
    };
    match contents {
        Some(contents) => {
            let file = serde_json::from_str(&contents);
            let file = file.map_err(|_| refused("the file of Google credentials is no JSON"))?;
            of_file(exchange, &file, scope).await
        }
        None => of_metadata(exchange, spec, scope).await,
    }
}

/// Exchanges a token by the credentials of a file.
async fn of_file(
    exchange: &TokenExchange,
    file: &Value,
    scope: &str,
) -> Result<IdentityToken, IdentityError> {
    match file["type"].as_str() {
        Some("authorized_user") => of_user(exchange, file).await,
        Some("service_account") => of_account(exchange, file, scope).await,
        Some("external_account") => google_external::token(exchange, file, scope).await,
        Some("impersonated_service_account") => {
            let source = &file["source_credentials"];
            let source = match source["type"].as_str() {
                Some("authorized_user") => of_user(exchange, source).await?,
                Some("service_account") => of_account(exchange, source, SCOPE).await?,
                _ => {
                    return Err(refused(
                        "`source_credentials` are of a type that is not known",
                    ));
                }
            };
            google_external::impersonated(exchange, file, &source, scope).await
        }
        other => Err(refused(format!(
            "Google credentials of type {} are not known here",
            other.unwrap_or("null")
        ))),
    }
}

async fn of_user(exchange: &TokenExchange, file: &Value) -> Result<IdentityToken, IdentityError> {
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", text(file, "client_id")?),
        ("client_secret", text(file, "client_secret")?),
        ("refresh_token", text(file, "refresh_token")?),
    ];
    let url = file["token_uri"].as_str().unwrap_or(TOKEN_URI);
    let document = exchange.form(url, &[], &fields).await?.json(url)?;
    exchange::bearer(&document)
}

async fn of_account(
    exchange: &TokenExchange,
    file: &Value,
    scope: &str,
) -> Result<IdentityToken, IdentityError> {
    let url = file["token_uri"].as_str().unwrap_or(TOKEN_URI);
    let assertion = assertion(file, (url, scope), clock::wall_now())?;
    let fields = [("grant_type", JWT_BEARER), ("assertion", &assertion)];
    let document = exchange.form(url, &[], &fields).await?.json(url)?;
    exchange::bearer(&document)
}

/// Signs the claim to be this account (RFC 7523).
fn assertion(
    file: &Value,
    (audience, scope): (&str, &str),
    now: Timestamp,
) -> Result<String, IdentityError> {
    let account = text(file, "client_email")?;
    let claims = json!({
        "iss": account, "scope": scope, "aud": audience, "iat": now.as_second(),
        "exp": now.as_second() + ASSERTION_LIFE,
    });
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": file["private_key_id"]});
    let claimed = format!(
        "{}.{}",
        BASE64.encode(header.to_string()),
        BASE64.encode(claims.to_string())
    );
    let unusable = || refused("`private_key` is no RSA key in PKCS #8");
    let key = PrivatePkcs8KeyDer::from_pem_slice(text(file, "private_key")?.as_bytes());
    let key = KeyPair::from_pkcs8(key.map_err(|_| unusable())?.secret_pkcs8_der());
    let key = key.map_err(|_| unusable())?;
    let mut signed = vec![0; key.public().modulus_len()];
    key.sign(
        &signature::RSA_PKCS1_SHA256,
        &SystemRandom::new(),
        claimed.as_bytes(),
        &mut signed,
    )
    .map_err(|_| unusable())?;
    Ok(format!("{claimed}.{}", BASE64.encode(signed)))
}

async fn of_metadata(
    exchange: &TokenExchange,
    spec: &IdentitySpec,
    scope: &str,
) -> Result<IdentityToken, IdentityError> {
    let host = spec.variables.get("GCE_METADATA_HOST").unwrap_or(METADATA);
    let query = exchange::form_of(&[("scopes", scope)]);
    let url = format!("http://{host}/{ACCOUNT}?{query}");
    let document = exchange
        .get(
            ExchangeWay::Metadata,
            &url,
            &[("metadata-flavor", "Google")],
        )
        .await?;
    let life = exchange::seconds(&document["expires_in"]).unwrap_or_default();
    let life = Duration::from_secs(u64::try_from(life).unwrap_or_default());
    IdentityToken::bearer(text(&document, "access_token")?, life)
}
