//! AWS's token service: keys of a role for a web identity or for other keys.

use jiff::Timestamp;
use serde_json::Value;

use super::{
    IdentityError, IdentityToken,
    exchange::{self, TokenExchange, form_of, tag},
    refused,
};
use crate::{
    aws_sign::{self, AwsKeys, Unsigned},
    domain::clock,
    identity_spec::Variables,
};

/// Version of the token service's API.
const STS_VERSION: &str = "2011-06-15";
/// Name of a session of a role, if none is given.
const SESSION: &str = "relight";

/// Keys that sign.
pub(super) struct AwsCredentials {
    pub(super) id: String,
    pub(super) secret: String,
    pub(super) session: String,
    pub(super) ends_at: Option<Timestamp>,
}

/// The token service and the region that it is signed for.
pub(super) struct TokenService<'a> {
    pub(super) exchange: &'a TokenExchange,
    url: String,
    region: String,
}

// === impl AwsCredentials ===

impl AwsCredentials {
    /// Reads the document of a metadata service.
    pub(super) fn read(document: &Value) -> Result<Self, IdentityError> {
        let field = |name| exchange::text(document, name).map(str::to_owned);
        Ok(Self {
            id: field("AccessKeyId")?,
            secret: field("SecretAccessKey")?,
            session: field("Token")?,
            ends_at: Some(end(&field("Expiration")?)?),
        })
    }

    /// Reads the document of the token service.
    fn of_service(xml: &str) -> Result<Self, IdentityError> {
        let field = |name| {
            let text = tag(xml, name).map(str::to_owned);
            text.ok_or_else(|| refused(format!("the token service's response has no {name}")))
        };
        Ok(Self {
            id: field("AccessKeyId")?,
            secret: field("SecretAccessKey")?,
            session: field("SessionToken")?,
            ends_at: Some(end(&field("Expiration")?)?),
        })
    }

    /// As a configured credential has them.
    fn text(&self) -> String {
        format!("{}:{}:{}", self.id, self.secret, self.session)
    }

    /// As they are held until they end.
    pub(super) fn token(self) -> IdentityToken {
        IdentityToken::keys(self.text(), self.ends_at)
    }
}

// === impl TokenService ===

impl<'a> TokenService<'a> {
    /// The token service of a region.
    pub(super) fn of(
        exchange: &'a TokenExchange,
        variables: &Variables,
        region: Option<&str>,
    ) -> Self {
        let named = ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .iter()
            .find_map(|name| variables.get(name));
        let region = region.or(named);
        let host = match region {
            None => "https://sts.amazonaws.com".to_owned(),
            Some(region) => {
                let china = if region.starts_with("cn-") { ".cn" } else { "" };
                format!("https://sts.{region}.amazonaws.com{china}")
            }
        };
        let given = variables.get("AWS_ENDPOINT_URL_STS");
        Self {
            exchange,
            url: given.map_or(host, |given| given.trim_end_matches('/').to_owned()),
            region: region.unwrap_or("us-east-1").to_owned(),
        }
    }

    /// Exchanges the token of a web identity for keys of a role. The file is read each time: the
    /// cluster replaces it.
    pub(super) async fn by_web_identity(
        &self,
        role: &str,
        session: Option<&str>,
        token_file: &str,
    ) -> Result<AwsCredentials, IdentityError> {
        let token = exchange::file(token_file).await?;
        let fields = [
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", STS_VERSION),
            ("RoleArn", role),
            ("RoleSessionName", session.unwrap_or(SESSION)),
            ("WebIdentityToken", token.trim()),
        ];
        let reply = self.exchange.form(&self.url, &[], &fields).await?;
        AwsCredentials::of_service(&reply.success(&self.url)?)
    }

    /// Exchanges keys for those of a role.
    pub(super) async fn by_keys(
        &self,
        keys: &AwsCredentials,
        (role, session, external_id): (&str, Option<&str>, Option<&str>),
    ) -> Result<AwsCredentials, IdentityError> {
        let mut fields = vec![
            ("Action", "AssumeRole"),
            ("Version", STS_VERSION),
            ("RoleArn", role),
            ("RoleSessionName", session.unwrap_or(SESSION)),
        ];
        fields.extend(external_id.map(|id| ("ExternalId", id)));
        let body = form_of(&fields);
        let host = self.url.split_once("://").map_or("", |(_, host)| host);
        let unsigned = Unsigned {
            host,
            path: "/",
            body: body.as_bytes(),
            region: &self.region,
            service: "sts",
        };
        let keys = AwsKeys::parse(&keys.text()).ok_or_else(|| refused("AWS keys are broken"))?;
        let signed = aws_sign::headers(&unsigned, &keys, clock::wall_now());
        let headers: Vec<(&str, &str)> = signed
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let reply = self.exchange.form(&self.url, &headers, &fields).await?;
        AwsCredentials::of_service(&reply.success(&self.url)?)
    }
}

fn end(text: &str) -> Result<Timestamp, IdentityError> {
    text.parse()
        .map_err(|_| refused(format!("`{text}` is no time at which keys end")))
}
