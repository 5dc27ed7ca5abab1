//! An identity provider: it signs tokens and publishes its keys.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _},
};
use serde_json::{Value, json};

/// An identity provider: its key, under a name.
pub(super) struct Signer {
    name: String,
    key: SignerKey,
}

enum SignerKey {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

// === impl Signer ===

impl Signer {
    pub(super) fn ed25519(name: &str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self {
            name: name.to_owned(),
            key: SignerKey::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()),
        }
    }

    pub(super) fn p256(name: &str) -> Self {
        let (random, scheme) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &random).unwrap();
        Self {
            name: name.to_owned(),
            key: SignerKey::P256(key),
        }
    }

    /// The public key as it is published.
    fn published(&self) -> Value {
        match &self.key {
            SignerKey::Ed25519(key) => {
                let x = BASE64.encode(key.public_key());
                json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.name, "x": x, "use": "sig" })
            }
            SignerKey::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                let (x, y) = (BASE64.encode(x), BASE64.encode(y));
                json!({ "kty": "EC", "crv": "P-256", "kid": self.name, "x": x, "y": y, "alg": "ES256" })
            }
        }
    }

    pub(super) fn token(&self, claims: &Value) -> String {
        let algorithm = if matches!(self.key, SignerKey::P256(_)) {
            "ES256"
        } else {
            "EdDSA"
        };
        self.token_with(&json!({ "alg": algorithm, "kid": self.name }), claims)
    }

    pub(super) fn token_with(&self, header: &Value, claims: &Value) -> String {
        let signed = format!(
            "{}.{}",
            BASE64.encode(header.to_string()),
            BASE64.encode(claims.to_string())
        );
        let signature = match &self.key {
            SignerKey::Ed25519(key) => key.sign(signed.as_bytes()).as_ref().to_vec(),
            SignerKey::P256(key) => key
                .sign(&SystemRandom::new(), signed.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
        };
        format!("{signed}.{}", BASE64.encode(signature))
    }
}

pub(super) fn set(signers: &[&Signer]) -> String {
    json!({ "keys": signers.iter().map(|signer| signer.published()).collect::<Vec<_>>() })
        .to_string()
}
