//! Identities that a cloud gives in the place of keys: where their tokens come from, and that one
//! which ends, is revoked or cannot be renewed for a while costs no call.

mod stand_in;

use std::{path::Path, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use relight::internals::{
    config::{GivenEnvironment, load_text},
    server::Running,
};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use self::stand_in::Clouds;
use crate::support::{
    front::{Answer, post, question},
    relight::running_in,
    room::room,
};

/// A key of a service account that exists nowhere else.
const ACCOUNT_KEY: &str = include_str!("../fixtures/service_account.pem");

/// A cloud, and what the provider of its models is configured with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Aws,
    Google,
    Azure,
}

fn settings(of: Of, clouds: &Clouds, more: &str) -> String {
    let url = &clouds.url;
    let provider = match of {
        Of::Aws => format!(
            "dialect: bedrock, region: eu-west-1, base_url: \"{url}/provider\", identity: {{ cloud: aws }}"
        ),
        Of::Google => format!(
            "dialect: gemini, base_url: \"{url}/provider/projects/p/locations/l/publishers/google\", identity: {{ cloud: google }}"
        ),
        Of::Azure => format!(
            "dialect: openai_chat, base_url: \"{url}/provider\", identity: {{ cloud: azure }}"
        ),
    };
    format!(
        "server: {{ listen: \"127.0.0.1:0\", admin_listen: \"127.0.0.1:0\", openai_front: {{ listen: \"127.0.0.1:0\" }} }}\n\
         providers: {{ p: {{ {provider}, chat: {{ stream: false }} }} }}\ntargets: {{ t: {{ provider: p, model: m }} }}\n\
         routes: {{ chat: {{ targets: [t] }} }}\n{more}"
    )
}

async fn relight(of: Of, clouds: &Clouds, variables: &[(&str, &str)]) -> Running {
    let set = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let environment: GivenEnvironment = variables.iter().map(set).collect();
    running_in(&settings(of, clouds, ""), None, &environment).await
}

async fn ask(relight: &Running) -> Answer {
    let address = relight.openai_front_address.unwrap();
    post(address, "/v1/chat/completions", &question("chat", false)).await
}

/// Asks once, and returns what the provider got as a proof.
async fn proof(relight: &Running, clouds: &Clouds) -> String {
    let answer = ask(relight).await;
    assert!(answer.succeeded_with("Ok"), "{answer:?}");
    clouds
        .calls()
        .last()
        .unwrap()
        .header("authorization")
        .to_owned()
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[tokio::test]
async fn aws_keys_come_from_each_place_that_its_own_tools_know() {
    let folder = tempfile::tempdir().unwrap();
    let token = write(folder.path(), "token", "of-the-pod\n");
    let keys = "[base]\naws_access_key_id = AKIABASE\naws_secret_access_key = s\n[plain]\naws_access_key_id = AKIAENV\n\
                aws_secret_access_key = s\n";
    let credentials = write(folder.path(), "credentials", keys);
    let roles = format!(
        "[profile by-keys]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n[profile by-web]\n\
         role_arn = arn:aws:iam::1:role/r\nweb_identity_token_file = {token}\n[profile by-machine]\n\
         role_arn = arn:aws:iam::1:role/none\ncredential_source = Environment\n"
    );
    let roles = write(folder.path(), "config", &roles);
    let home = folder.path().display().to_string();
    let files = [
        ("AWS_SHARED_CREDENTIALS_FILE", credentials.as_str()),
        ("AWS_CONFIG_FILE", &roles),
    ];
    let clouds = Clouds::start().await;
    let container = format!("{}/container", clouds.url);
    let places: [(&[(&str, &str)], &str); 7] = [
        (
            &[
                ("AWS_ACCESS_KEY_ID", "AKIAENV"),
                ("AWS_SECRET_ACCESS_KEY", "s"),
            ],
            "AKIAENV",
        ),
        (&[files[0], ("AWS_PROFILE", "plain")], "AKIAENV"),
        (&[files[0], files[1], ("AWS_PROFILE", "by-keys")], "ASIA"),
        (&[files[1], ("AWS_PROFILE", "by-web")], "ASIA"),
        (
            &[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", &token),
                ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
            ],
            "ASIA",
        ),
        (
            &[
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &container),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token),
            ],
            "ASIA",
        ),
        (&[], "ASIA"),
    ];
    for (variables, key) in places {
        let everywhere = [
            ("HOME", home.as_str()),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &clouds.url),
            ("AWS_ENDPOINT_URL_STS", &clouds.url),
        ];
        let relight = relight(Of::Aws, &clouds, &[&everywhere, variables].concat()).await;
        let proof = proof(&relight, &clouds).await;
        assert!(
            proof.contains(&format!("Credential={key}")),
            "{variables:?}: {proof}"
        );
        assert_eq!(
            clouds
                .calls()
                .last()
                .unwrap()
                .header("x-amz-security-token"),
            if key == "ASIA" { "session-token" } else { "" },
            "{variables:?}"
        );
        let asked = clouds.exchanges().len();
        ask(&relight).await;
        assert_eq!(clouds.exchanges().len(), asked, "keys are kept");
    }
}

#[tokio::test]
async fn google_tokens_come_from_each_kind_of_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let clouds = Clouds::start().await;
    let url = &clouds.url;
    let token_uri = format!("{url}/token");
    let subject = write(folder.path(), "subject", "subject-token\n");
    let external = json!({
        "type": "external_account", "audience": "//iam/pool", "token_url": format!("{url}/sts/v1/token"),
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
    });
    let (mut of_file, mut of_url) = (external.clone(), external);
    of_file["credential_source"] = json!({"file": subject});
    of_url["credential_source"] = json!({
        "url": format!("{url}/subject"), "headers": {"x-given": "yes"},
        "format": {"type": "json", "subject_token_field_name": "value"},
    });
    of_url["service_account_impersonation_url"] =
        json!(format!("{url}/account:generateAccessToken"));
    let kinds = [
        (
            json!({
                "type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": token_uri,
            }),
            "ref",
        ),
        (
            json!({
                "type": "service_account", "client_email": "a@p.example", "private_key_id": "k", "private_key": ACCOUNT_KEY,
                "token_uri": token_uri,
            }),
            "urn",
        ),
        (of_file, "federated"),
        (of_url, "impersonated"),
        (Value::Null, "gce"),
    ];
    let host = url.trim_start_matches("http://");
    for (credentials, kind) in kinds {
        let file = write(folder.path(), "credentials.json", &credentials.to_string());
        let mut variables = vec![("GCE_METADATA_HOST", host)];
        if !credentials.is_null() {
            variables.push(("GOOGLE_APPLICATION_CREDENTIALS", &file));
        }
        let relight = relight(Of::Google, &clouds, &variables).await;
        let proof = proof(&relight, &clouds).await;
        assert!(
            proof.starts_with(&format!("Bearer {kind}")),
            "{kind}: {proof}"
        );
    }
    let signed = clouds
        .exchanges()
        .into_iter()
        .find_map(|asked| asked.field("assertion"))
        .unwrap();
    signed_by_the_account(&signed, &token_uri);
}

/// Checks a signed claim as Google's token service does.
fn signed_by_the_account(assertion: &str, audience: &str) {
    let (claimed, signature) = assertion.rsplit_once('.').unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(ACCOUNT_KEY.as_bytes()).unwrap();
    let key = ring::rsa::KeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public());
    let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
    public.verify(claimed.as_bytes(), &signature).unwrap();
    let claims = claimed.split_once('.').unwrap().1;
    let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    assert_eq!(
        (&claims["iss"], &claims["aud"]),
        (&json!("a@p.example"), &json!(audience))
    );
    let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert!((1..=3600).contains(&life), "{claims}");
}

#[tokio::test]
async fn azure_tokens_come_from_a_secret_a_federated_token_and_a_managed_identity() {
    let folder = tempfile::tempdir().unwrap();
    let federated = write(folder.path(), "federated", "of-the-cluster\n");
    let clouds = Clouds::start().await;
    let app = format!("{}/app-service", clouds.url);
    let client = [
        ("AZURE_TENANT_ID", "the-tenant"),
        ("AZURE_CLIENT_ID", "the-client"),
    ];
    let places: [(&[(&str, &str)], &str); 4] = [
        (
            &[client[0], client[1], ("AZURE_CLIENT_SECRET", "s&=")],
            "entra",
        ),
        (
            &[
                client[0],
                client[1],
                ("AZURE_FEDERATED_TOKEN_FILE", &federated),
            ],
            "entra",
        ),
        (
            &[
                ("IDENTITY_ENDPOINT", &app),
                ("IDENTITY_HEADER", "of-the-app"),
            ],
            "app",
        ),
        (&[client[1]], "machine"),
    ];
    for (variables, kind) in places {
        let everywhere = [
            ("AZURE_AUTHORITY_HOST", clouds.url.as_str()),
            ("AZURE_POD_IDENTITY_AUTHORITY_HOST", &clouds.url),
        ];
        let relight = relight(Of::Azure, &clouds, &[&everywhere, variables].concat()).await;
        let proof = proof(&relight, &clouds).await;
        assert!(proof.starts_with(&format!("Bearer {kind}")), "{proof}");
    }
    let exchanges = clouds.exchanges();
    assert_eq!(exchanges[0].field("client_secret").as_deref(), Some("s&="));
    assert_eq!(
        exchanges[0].field("scope").as_deref(),
        Some("https://cognitiveservices.azure.com/.default")
    );
    assert_eq!(
        exchanges[1].field("client_assertion").as_deref(),
        Some("of-the-cluster")
    );
    assert!(
        exchanges[2]
            .query
            .contains("resource=https%3A%2F%2Fcognitiveservices.azure.com")
    );
    assert!(exchanges[3].query.contains("client_id=the-client"));
}

/// The variables by which each cloud's metadata service is the stand-in.
fn metadata(clouds: &Clouds) -> [(Of, Vec<(&'static str, String)>); 3] {
    let url = clouds.url.clone();
    let host = url.trim_start_matches("http://").to_owned();
    [
        (
            Of::Aws,
            vec![("AWS_EC2_METADATA_SERVICE_ENDPOINT", url.clone())],
        ),
        (Of::Google, vec![("GCE_METADATA_HOST", host)]),
        (Of::Azure, vec![("AZURE_POD_IDENTITY_AUTHORITY_HOST", url)]),
    ]
}

async fn with_metadata(of: Of, clouds: &Clouds) -> Running {
    let found = metadata(clouds).into_iter().find(|(cloud, _)| *cloud == of);
    let variables = found.unwrap().1;
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    relight(of, clouds, &variables).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_end_in_the_middle_of_a_stream_of_calls_cost_none() {
    let _room = room().await;
    for of in [Of::Aws, Of::Google, Of::Azure] {
        let clouds = Clouds::start().await;
        clouds.live_for(Duration::from_secs(3));
        let relight = with_metadata(of, &clouds).await;
        for call in 0..45 {
            let answers = futures_util::future::join_all((0..4).map(|_| ask(&relight))).await;
            for answer in answers {
                assert!(
                    answer.succeeded_with("Ok"),
                    "{of:?}, call {call}: {answer:?}"
                );
                assert_eq!(answer.header("x-relight-attempts"), Some("1"));
            }
            sleep(Duration::from_millis(200)).await;
        }
        // A token that is exchanged only when it has ended costs four calls each time; one that ends
        // on its way, on a machine that stood still, fewer.
        let sent_again = clouds.calls().len() - 180;
        assert!(sent_again < 4, "{of:?}: {sent_again} were refused");
        let proofs: std::collections::BTreeSet<String> = clouds
            .calls()
            .iter()
            .map(|call| {
                let proof = call.header("authorization");
                proof.split(['/', ',']).next().unwrap().to_owned()
            })
            .collect();
        assert!(proofs.len() >= 3, "{of:?}: {proofs:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_revoked_is_exchanged_once_and_the_call_sent_again() {
    for of in [Of::Aws, Of::Google, Of::Azure] {
        let clouds = Clouds::start().await;
        let relight = with_metadata(of, &clouds).await;
        let before = proof(&relight, &clouds).await;
        clouds.revoke();
        let answers = futures_util::future::join_all((0..8).map(|_| ask(&relight))).await;
        let asked = clouds.exchanges().len();
        for answer in answers {
            assert!(answer.succeeded_with("Ok"), "{of:?}: {answer:?}");
            assert_eq!(answer.header("x-relight-attempts"), Some("1"));
        }
        assert_ne!(proof(&relight, &clouds).await, before);
        let per_exchange = if of == Of::Aws { 3 } else { 1 };
        assert_eq!(asked, 2 * per_exchange, "{of:?}: one exchange for all");
    }
}

#[tokio::test]
async fn a_provider_that_refuses_every_token_is_not_a_reason_to_exchange_one_each_time() {
    let clouds = Clouds::start().await;
    clouds.live_for(Duration::from_hours(1));
    let relight = with_metadata(Of::Azure, &clouds).await;
    proof(&relight, &clouds).await;
    for _ in 0..5 {
        clouds.revoke();
        ask(&relight).await;
    }
    assert!(
        clouds.exchanges().len() <= 2,
        "{:?}",
        clouds.exchanges().len()
    );
}

#[tokio::test]
async fn a_metadata_service_that_throttles_or_is_away_for_a_moment_costs_no_call() {
    for (of, status) in [(Of::Aws, 503), (Of::Google, 429), (Of::Azure, 410)] {
        let clouds = Clouds::start().await;
        clouds.refuse(2, status);
        let relight = with_metadata(of, &clouds).await;
        let answer = ask(&relight).await;
        assert!(answer.succeeded_with("Ok"), "{of:?}: {answer:?}");
        assert_eq!(answer.header("x-relight-attempts"), Some("1"));
    }
}

#[tokio::test]
async fn a_token_is_used_until_it_ends_while_it_cannot_be_renewed() {
    let clouds = Clouds::start().await;
    clouds.live_for(Duration::from_secs(8));
    let relight = with_metadata(Of::Google, &clouds).await;
    let first = proof(&relight, &clouds).await;
    clouds.refuse(usize::MAX, 503);
    sleep(Duration::from_millis(6500)).await;
    assert_eq!(
        proof(&relight, &clouds).await,
        first,
        "it is due, and holds"
    );
    let asked = clouds.exchanges().len();
    assert_eq!(asked, 2);
    proof(&relight, &clouds).await;
    assert_eq!(clouds.exchanges().len(), asked, "not with each call");
    clouds.refuse(0, 200);
    sleep(Duration::from_secs(2)).await;
    assert_ne!(proof(&relight, &clouds).await, first);
}

#[tokio::test]
async fn a_right_that_is_missing_is_a_failure_of_the_credential_and_shows_no_secret() {
    let clouds = Clouds::start().await;
    let folder = tempfile::tempdir().unwrap();
    let token = write(folder.path(), "token", "another-pod");
    let variables = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", token.as_str()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
        ("AWS_ENDPOINT_URL_STS", &clouds.url),
    ];
    let relight = relight(Of::Aws, &clouds, &variables).await;
    let answer = ask(&relight).await;
    assert_eq!(
        answer.error()["code"],
        "upstream_authentication",
        "{answer:?}"
    );
    assert!(!answer.body.contains("another-pod"), "{answer:?}");
    assert!(clouds.calls().is_empty());
}

#[test]
fn an_identity_is_of_a_dialect_and_takes_the_place_of_keys() {
    let provider = |settings: &str| {
        let text = format!(
            "providers: {{ p: {{ base_url: \"https://h.example/v1\", {settings} }} }}\ntargets: {{ t: {{ provider: p, model: m }} \
             }}\nroutes: {{ default: {{ targets: [t] }} }}\n"
        );
        let loaded = load_text(&text, None, &GivenEnvironment::new());
        loaded
            .err()
            .map(|faults| faults.to_string())
            .unwrap_or_default()
    };
    assert_eq!(provider("dialect: gemini, identity: { cloud: google }"), "");
    for (settings, at) in [
        (
            "dialect: gemini, identity: { cloud: aws }",
            "providers.p.identity.cloud",
        ),
        (
            "dialect: bedrock, region: r, identity: { cloud: azure }",
            "providers.p.identity.cloud",
        ),
        (
            "dialect: gemini, api_key: k, identity: { cloud: google }",
            "providers.p.identity",
        ),
        (
            "dialect: bedrock, region: r, identity: { cloud: aws, scope: s }",
            "providers.p.identity.scope",
        ),
        ("dialect: gemini, identity: {}", "cloud"),
    ] {
        let faults = provider(settings);
        assert!(faults.contains(at), "{settings}: {faults}");
    }
}
