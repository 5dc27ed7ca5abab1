//! Places that hand out AWS keys without an exchange: the environment, the container's service and
//! the instance's.

use std::time::Duration;

use http::{Method, Uri};

use super::{
    IdentityError,
    aws_roles::AwsCredentials,
    exchange::{self, ExchangeWay, TokenExchange},
    refused,
};
use crate::{domain::clock, identity_spec::Variables};

/// Address of the container's service.
const CONTAINER: &str = "http://169.254.170.2";
/// Hosts that may be given the container's token in plain HTTP.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"];
const INSTANCE: &str = "http://169.254.169.254";
/// Life of a session with the instance's service, in seconds.
const INSTANCE_SESSION: (&str, &str) = ("x-aws-ec2-metadata-token-ttl-seconds", "21600");
/// Time for which keys of an instance are used whose end has passed: its service hands them out in
/// an outage of its own, and AWS takes them.
const IN_AN_OUTAGE: Duration = Duration::from_mins(10);

/// Returns the keys of the environment, if it has some.
pub(super) fn of_environment(variables: &Variables) -> Option<AwsCredentials> {
    let variable = |name| variables.get(name).map(str::to_owned);
    Some(AwsCredentials {
        id: variable("AWS_ACCESS_KEY_ID")?,
        secret: variable("AWS_SECRET_ACCESS_KEY")?,
        session: variable("AWS_SESSION_TOKEN").unwrap_or_default(),
        ends_at: None,
    })
}

/// Gets the keys of the container; `None` if this runs in none.
pub(super) async fn of_container(
    exchange: &TokenExchange,
    variables: &Variables,
) -> Result<Option<AwsCredentials>, IdentityError> {
    let relative = variables.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let full = variables.get("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    let url = match (relative, full) {
        (Some(path), _) => format!("{CONTAINER}{path}"),
        (None, Some(url)) => url.to_owned(),
        (None, None) => return Ok(None),
    };
    let token = match variables.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(path) => Some(exchange::file(path).await?.trim().to_owned()),
        None => variables
            .get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
            .map(str::to_owned),
    };
    // Elsewhere the token may be sent in TLS, or to this host.
    let way = if is_container_service(&url) {
        ExchangeWay::Metadata
    } else {
        ExchangeWay::Service
    };
    let headers: Vec<(&str, &str)> = token
        .iter()
        .map(|token| ("authorization", token.as_str()))
        .collect();
    let document = exchange.get(way, &url, &headers).await?;
    AwsCredentials::read(&document).map(Some)
}

/// Returns whether the host of this URL is one that may be given the token in plain HTTP.
fn is_container_service(url: &str) -> bool {
    let url: Option<Uri> = url.parse().ok();
    let host = url.as_ref().and_then(Uri::host);
    host.is_some_and(|host| CONTAINER_HOSTS.contains(&host))
}

/// Gets the keys of the instance.
pub(super) async fn of_instance(
    exchange: &TokenExchange,
    variables: &Variables,
) -> Result<AwsCredentials, IdentityError> {
    let host = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    let host = host.unwrap_or(INSTANCE).trim_end_matches('/');
    let url = format!("{host}/latest/api/token");
    let session = exchange
        .send(
            ExchangeWay::Metadata,
            (Method::PUT, &url),
            &[INSTANCE_SESSION],
            String::new(),
        )
        .await?
        .success(&url)?;
    let header = [("x-aws-ec2-metadata-token", session.trim())];
    let roles = format!("{host}/latest/meta-data/iam/security-credentials/");
    let role = exchange
        .send(
            ExchangeWay::Metadata,
            (Method::GET, &roles),
            &header,
            String::new(),
        )
        .await?
        .success(&roles)?;
    let role = role.lines().next().unwrap_or_default().trim();
    if role.is_empty() {
        return Err(refused("the instance has no role"));
    }
    let document = exchange
        .get(ExchangeWay::Metadata, &format!("{roles}{role}"), &header)
        .await?;
    if document["Code"] != "Success" {
        let why = format!("the instance has no keys: {}", document["Code"]);
        return Err(IdentityError::away(why));
    }
    let mut keys = AwsCredentials::read(&document)?;
    let now = clock::wall_now();
    if keys.ends_at.is_some_and(|end| end <= now) {
        keys.ends_at = now.checked_add(IN_AN_OUTAGE).ok();
    }
    Ok(keys)
}

/// Gets the keys of a place by its name in a profile.
pub(super) async fn of_place(
    exchange: &TokenExchange,
    variables: &Variables,
    place: &str,
) -> Result<AwsCredentials, IdentityError> {
    let found = match place {
        "Environment" => of_environment(variables),
        "EcsContainer" => of_container(exchange, variables).await?,
        "Ec2InstanceMetadata" => Some(of_instance(exchange, variables).await?),
        other => {
            return Err(refused(format!(
                "`credential_source = {other}` is not known"
            )));
        }
    };
    found.ok_or_else(|| refused(format!("`credential_source = {place}` has no keys")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_host_of_a_containers_service_is_given_its_token_in_plain_http() {
        for url in [
            "http://169.254.170.2/v2/credentials",
            "http://169.254.170.23:80/v1/credentials",
            "http://[fd00:ec2::23]/v1/credentials",
        ] {
            assert!(is_container_service(url), "{url}");
        }
        for url in [
            "http://169.254.170.2.example.com/v2/credentials",
            "http://169.254.170.234/v2/credentials",
            "http://169.254.170.2@example.com/v2/credentials",
            "http://example.com/169.254.170.2",
            "not a url",
        ] {
            assert!(!is_container_service(url), "{url}");
        }
    }
}
