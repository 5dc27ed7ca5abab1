//! Azure: a client secret, a federated token (workload identity), or the managed identity of the
//! service that this runs in.

use std::time::Duration;

use super::{
    IdentityError, IdentityToken,
    exchange::{self, ExchangeWay, TokenExchange, form_of},
    refused,
};
use crate::{domain::clock, identity_spec::IdentitySpec};

/// Scope of the models of Azure `OpenAI` and Foundry.
const SCOPE: &str = "https://cognitiveservices.azure.com/.default";
const AUTHORITY: &str = "https://login.microsoftonline.com";
const METADATA: &str = "http://169.254.169.254";
const ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Exchanges a token.
pub(super) async fn token(
    exchange: &TokenExchange,
    spec: &IdentitySpec,
) -> Result<IdentityToken, IdentityError> {
    let variable = |name| spec.variables.get(name);
    let scope = spec.scope.as_deref().unwrap_or(SCOPE);
    let client = variable("AZURE_CLIENT_ID");
    let proof = match (
        variable("AZURE_CLIENT_SECRET"),
        variable("AZURE_FEDERATED_TOKEN_FILE"),
    ) {
        (Some(secret), _) => Some(vec![("client_secret", secret.to_owned())]),
        // It is read each time: the cluster replaces it.
        (None, Some(file)) => Some(vec![
            ("client_assertion_type", ASSERTION.to_owned()),
            (
                "client_assertion",
                exchange::file(file).await?.trim().to_owned(),
            ),
        ]),
        (None, None) => None,
    };
    let Some(proof) = proof else {
        return managed(exchange, spec, scope.trim_end_matches("/.default")).await;
    };
    let tenant =
        variable("AZURE_TENANT_ID").ok_or_else(|| refused("AZURE_TENANT_ID is not set"))?;
    let client = client.ok_or_else(|| refused("AZURE_CLIENT_ID is not set"))?;
    let authority = variable("AZURE_AUTHORITY_HOST").unwrap_or(AUTHORITY);
    let url = format!(
        "{}/{tenant}/oauth2/v2.0/token",
        authority.trim_end_matches('/')
    );
    let mut fields = vec![
        ("grant_type", "client_credentials"),
        ("client_id", client),
        ("scope", scope),
    ];
    fields.extend(proof.iter().map(|(name, value)| (*name, value.as_str())));
    let document = exchange.form(&url, &[], &fields).await?.json(&url)?;
    exchange::bearer(&document)
}

/// Gets a token of the managed identity: of App Service and its kin, else of the machine.
async fn managed(
    exchange: &TokenExchange,
    spec: &IdentitySpec,
    resource: &str,
) -> Result<IdentityToken, IdentityError> {
    let variable = |name| spec.variables.get(name);
    let mut query = vec![("resource", resource)];
    query.extend(variable("AZURE_CLIENT_ID").map(|client| ("client_id", client)));
    let of_service = variable("IDENTITY_ENDPOINT").zip(variable("IDENTITY_HEADER"));
    let (url, headers) = if let Some((endpoint, secret)) = of_service {
        query.push(("api-version", "2019-08-01"));
        (endpoint.to_owned(), [("x-identity-header", secret)])
    } else {
        query.push(("api-version", "2018-02-01"));
        let host = variable("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or(METADATA);
        let host = host.trim_end_matches('/');
        (
            format!("{host}/metadata/identity/oauth2/token"),
            [("metadata", "true")],
        )
    };
    let url = format!("{url}?{}", form_of(&query));
    let document = exchange.get(ExchangeWay::Metadata, &url, &headers).await?;
    let token = exchange::text(&document, "access_token")?;
    // One of the two states the end, by the service.
    let left = exchange::seconds(&document["expires_in"]).or_else(|| {
        Some(exchange::seconds(&document["expires_on"])? - clock::wall_now().as_second())
    });
    let left = left.and_then(|left| u64::try_from(left).ok());
    IdentityToken::bearer(token, Duration::from_secs(left.unwrap_or_default()))
}
