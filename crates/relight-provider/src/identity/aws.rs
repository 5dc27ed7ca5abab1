//! AWS: keys of the environment, of a profile, of a web identity (IRSA), of a container (ECS, EKS
//! Pod Identity) or of the instance (`IMDSv2`), in this order, which is that of AWS's own SDKs.

use super::{
    IdentityError, IdentityToken,
    aws_places::{of_container, of_environment, of_instance},
    aws_profile,
    aws_roles::{AwsCredentials, TokenService},
    exchange::TokenExchange,
    refused,
};
use crate::identity_spec::{IdentitySpec, Variables};

/// Finds keys.
pub(super) async fn token(
    exchange: &TokenExchange,
    spec: &IdentitySpec,
    region: Option<&str>,
) -> Result<IdentityToken, IdentityError> {
    let variables = &spec.variables;
    let service = TokenService::of(exchange, variables, region);
    let keys = if let Some(keys) = of_environment(variables) {
        keys
    } else if let Some(keys) = aws_profile::keys(&service, variables).await? {
        keys
    } else if let Some(keys) = of_web_identity(&service, variables).await? {
        keys
    } else if let Some(keys) = of_container(exchange, variables).await? {
        keys
    } else if variables
        .get("AWS_EC2_METADATA_DISABLED")
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    {
        let why = "there are no AWS keys in the environment, a profile, a web identity or a container, and the instance is \
                   not asked (AWS_EC2_METADATA_DISABLED)";
        return Err(refused(why));
    } else {
        of_instance(exchange, variables).await?
    };
    Ok(keys.token())
}

async fn of_web_identity(
    service: &TokenService<'_>,
    variables: &Variables,
) -> Result<Option<AwsCredentials>, IdentityError> {
    let file = variables.get("AWS_WEB_IDENTITY_TOKEN_FILE");
    let Some((file, role)) = file.zip(variables.get("AWS_ROLE_ARN")) else {
        return Ok(None);
    };
    let session = variables.get("AWS_ROLE_SESSION_NAME");
    service.by_web_identity(role, session, file).await.map(Some)
}
