//! Profiles of AWS's configuration files: keys, and roles that are taken on with other keys.

use std::{collections::BTreeMap, future::Future, pin::Pin};

use super::{
    IdentityError,
    aws_places::of_place,
    aws_roles::{AwsCredentials, TokenService},
    exchange, refused,
};
use crate::identity_spec::Variables;

/// Most profiles that refer to each other.
const MAX_CHAIN: usize = 8;

/// Names of what a profile may have that only other programs can carry out.
const NOT_HERE: [&str; 4] = [
    "credential_process",
    "sso_session",
    "sso_start_url",
    "mfa_serial",
];

/// The settings of all profiles, by name.
type Profiles = BTreeMap<String, BTreeMap<String, String>>;

/// The keys of a profile, which may be those of another one.
type FoundKeys<'a> =
    Pin<Box<dyn Future<Output = Result<Option<AwsCredentials>, IdentityError>> + Send + 'a>>;

/// Returns the keys of the chosen profile; `None` if there is no such profile, or it has none.
pub(super) async fn keys(
    service: &TokenService<'_>,
    variables: &Variables,
) -> Result<Option<AwsCredentials>, IdentityError> {
    let mut profiles = Profiles::new();
    let files = [
        ("AWS_CONFIG_FILE", ".aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"),
    ];
    for (name, usual) in files {
        let named = variables.get(name).map(str::to_owned);
        let Some(path) = named.or_else(|| variables.below_home(usual)) else {
            continue;
        };
        if let Ok(text) = tokio::fs::read_to_string(&path).await {
            read(&text, &mut profiles);
        } else if variables.get(name).is_some() {
            // It was named, so that it is missed.
            exchange::file(&path).await?;
        }
    }
    let chosen = variables.get("AWS_PROFILE");
    let name = chosen.unwrap_or("default");
    if !profiles.contains_key(name) {
        return match chosen {
            Some(name) => Err(refused(format!("there is no AWS profile `{name}`"))),
            None => Ok(None),
        };
    }
    of_profile(service, variables, &profiles, name, MAX_CHAIN).await
}

/// Returns the keys of one profile, which may be those of a role.
fn of_profile<'a>(
    service: &'a TokenService<'_>,
    variables: &'a Variables,
    profiles: &'a Profiles,
    name: &'a str,
    left: usize,
) -> FoundKeys<'a> {
    Box::pin(async move {
        let profile = profiles
            .get(name)
            .ok_or_else(|| refused(format!("there is no AWS profile `{name}`")))?;
        let setting = |name| profile.get(name).map(String::as_str);
        let Some(role) = setting("role_arn") else {
            return own(name, profile);
        };
        let session = setting("role_session_name");
        if let Some(file) = setting("web_identity_token_file") {
            return service.by_web_identity(role, session, file).await.map(Some);
        }
        let source = match (setting("source_profile"), setting("credential_source")) {
            (Some(source), _) if source == name => own(name, profile)?,
            (Some(_), _) if left == 0 => {
                return Err(refused("AWS profiles refer to each other in a circle"));
            }
            (Some(source), _) => of_profile(service, variables, profiles, source, left - 1).await?,
            (None, Some(place)) => Some(of_place(service.exchange, variables, place).await?),
            (None, None) => None,
        };
        let source = source.ok_or_else(|| {
            refused(format!(
                "the AWS profile `{name}` has a role and no keys to take it on with"
            ))
        })?;
        let role = (role, session, setting("external_id"));
        service.by_keys(&source, role).await.map(Some)
    })
}

/// Returns the keys that a profile has itself.
fn own(
    name: &str,
    profile: &BTreeMap<String, String>,
) -> Result<Option<AwsCredentials>, IdentityError> {
    let setting = |name: &str| profile.get(name).cloned();
    if let (Some(id), Some(secret)) = (
        setting("aws_access_key_id"),
        setting("aws_secret_access_key"),
    ) {
        return Ok(Some(AwsCredentials {
            id,
            secret,
            session: setting("aws_session_token").unwrap_or_default(),
            ends_at: None,
        }));
    }
    match NOT_HERE
        .iter()
        .find(|setting| profile.contains_key(**setting))
    {
        Some(setting) => Err(refused(format!(
            "the AWS profile `{name}` has `{setting}`, which needs a program or a person; use a role or keys"
        ))),
        None => Ok(None),
    }
}

/// Reads a file of profiles; settings that are there already are replaced.
fn read(text: &str, profiles: &mut Profiles) {
    let mut section: Option<String> = None;
    for line in text.lines() {
        // Settings within a setting are indented; none of them matters here.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
        {
            let name = name.trim();
            section = match name.split_once(char::is_whitespace) {
                Some(("profile", name)) => Some(name.trim().trim_matches('"').to_owned()),
                Some(_) => None,
                None => Some(name.to_owned()),
            };
            if let Some(name) = &section {
                profiles.entry(name.clone()).or_default();
            }
        } else if let (Some(section), Some((name, value))) = (&section, line.split_once('=')) {
            let profile = profiles.entry(section.clone()).or_default();
            profile.insert(name.trim().to_lowercase(), value.trim().to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_from_both_kinds_of_files() {
        let mut profiles = Profiles::new();
        read(
            "[default]\nregion = eu-west-1\n# a comment\n[profile build]\nrole_arn=arn:aws:iam::1:role/r\nsource_profile = base\n\
             s3 =\n  max_concurrent_requests = 20\n[sso-session main]\nsso_region = x\n",
            &mut profiles,
        );
        read(
            "[base]\naws_access_key_id = AKIA\nAWS_SECRET_ACCESS_KEY = s=ecret\n",
            &mut profiles,
        );
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        assert_eq!(names, ["base", "build", "default"]);
        assert_eq!(profiles["build"]["source_profile"], "base");
        let keys = own("base", &profiles["base"]).unwrap().unwrap();
        assert_eq!(
            (keys.id.as_str(), keys.secret.as_str()),
            ("AKIA", "s=ecret")
        );
        assert!(own("default", &profiles["default"]).unwrap().is_none());
    }

    #[test]
    fn a_profile_that_needs_a_program_is_refused_in_words() {
        let profile = BTreeMap::from([("credential_process".to_owned(), "/bin/x".to_owned())]);
        let refused = own("p", &profile).err().unwrap();
        assert!(format!("{refused:?}").contains("credential_process"));
    }
}
