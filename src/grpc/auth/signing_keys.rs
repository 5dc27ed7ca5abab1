//! The public keys with which an identity provider's tokens are verified, as a JSON Web Key Set
//! names them.
//!
//! Asymmetric algorithms only: with a shared secret, a party that can verify a token can make one.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Most keys of one set.
const MAX_KEYS: usize = 100;

/// The first byte of a point of an elliptic curve that is written out whole.
const UNCOMPRESSED: u8 = 4;

/// The keys of one identity provider.
#[derive(Debug, Default)]
pub(super) struct SigningKeys {
    keys: Vec<SigningKey>,
}

/// Error returned if a signature is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SignatureFault {
    /// No key of the set has this name and can have made it; a newer set may have one.
    UnknownKey,
    /// It was not made by the key that it names.
    Wrong,
}

#[derive(Debug)]
struct SigningKey {
    id: Option<String>,
    /// The one algorithm for which it is; `None` if the set does not say.
    algorithm: Option<String>,
    material: KeyMaterial,
}

#[derive(Debug)]
enum KeyMaterial {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct JwkSet {
    keys: Vec<Jwk>,
}

/// One key as it is published; members that are of other kinds of keys are left out.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

// === impl SigningKeys ===

impl SigningKeys {
    /// Reads a set. Keys of kinds that are not known, or that are not for signatures, are left out,
    /// as the specification requires.
    ///
    /// # Errors
    /// Returns an error if it is not a valid set, has too many keys, or none that can be used.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let set: JwkSet = serde_json::from_slice(text)
            .map_err(|error| format!("it is no JSON Web Key Set: {error}"))?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let keys: Vec<SigningKey> = set.keys.into_iter().filter_map(SigningKey::of).collect();
        if keys.is_empty() {
            Err("it has no key that can verify a signature".to_owned())
        } else {
            Ok(Self { keys })
        }
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Checks whether the key with this name, or any if none is named, made this signature of a
    /// message.
    ///
    /// # Errors
    /// Returns the reason for which it is not accepted.
    pub(super) fn verify(
        &self,
        algorithm: &str,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureFault> {
        let mut fault = SignatureFault::UnknownKey;
        for key in self
            .keys
            .iter()
            .filter(|key| id.is_none() || key.id.as_deref() == id)
        {
            match key.verify(algorithm, message, signature) {
                Some(true) => return Ok(()),
                Some(false) => fault = SignatureFault::Wrong,
                None => {}
            }
        }
        Err(fault)
    }
}

// === impl SigningKey ===

impl SigningKey {
    fn of(jwk: Jwk) -> Option<Self> {
        if jwk
            .purpose
            .as_deref()
            .is_some_and(|purpose| purpose != "sig")
        {
            return None;
        }
        let bytes =
            |text: Option<&String>| BASE64.decode(text?).ok().filter(|bytes| !bytes.is_empty());
        let point = |length: usize| {
            let x = bytes(jwk.x.as_ref())?;
            let y = bytes(jwk.y.as_ref())?;
            (x.len() == length && y.len() == length).then(|| [&[UNCOMPRESSED], &*x, &*y].concat())
        };
        let material = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => KeyMaterial::Rsa {
                modulus: bytes(jwk.n.as_ref())?,
                exponent: bytes(jwk.e.as_ref())?,
            },
            ("EC", Some("P-256")) => KeyMaterial::P256(point(32)?),
            ("EC", Some("P-384")) => KeyMaterial::P384(point(48)?),
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes(jwk.x.as_ref())?),
            _ => return None,
        };
        Some(Self {
            id: jwk.kid,
            algorithm: jwk.alg,
            material,
        })
    }

    /// Returns whether it made this signature; `None` if it is not for this algorithm.
    fn verify(&self, algorithm: &str, message: &[u8], signature: &[u8]) -> Option<bool> {
        if self
            .algorithm
            .as_deref()
            .is_some_and(|own| own != algorithm)
        {
            return None;
        }
        let rsa = |parameters| match &self.material {
            KeyMaterial::Rsa {
                modulus: n,
                exponent: e,
            } => Some(
                RsaPublicKeyComponents { n, e }
                    .verify(parameters, message, signature)
                    .is_ok(),
            ),
            _ => None,
        };
        let by = |scheme: &'static dyn signature::VerificationAlgorithm, key: &[u8]| {
            Some(
                UnparsedPublicKey::new(scheme, key)
                    .verify(message, signature)
                    .is_ok(),
            )
        };
        match (algorithm, &self.material) {
            ("RS256", _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
            ("RS384", _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
            ("RS512", _) => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
            ("PS256", _) => rsa(&signature::RSA_PSS_2048_8192_SHA256),
            ("PS384", _) => rsa(&signature::RSA_PSS_2048_8192_SHA384),
            ("PS512", _) => rsa(&signature::RSA_PSS_2048_8192_SHA512),
            ("ES256", KeyMaterial::P256(key)) => by(&signature::ECDSA_P256_SHA256_FIXED, key),
            ("ES384", KeyMaterial::P384(key)) => by(&signature::ECDSA_P384_SHA384_FIXED, key),
            ("EdDSA", KeyMaterial::Ed25519(key)) => by(&signature::ED25519, key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A public key of RSA, whose exponent is 65537.
    const MODULUS: &str = concat!(
        "rMQAvzDIsvzAhv78zl23_PmEnxaqTJzfYonbOVz7T42BYfcVrHOymnP7Q3KsrkIoGMjHUOE6l7zJVyogEZU2RGBdcBzr1zID",
        "1F7InxQuirB14ygW79artrVevoaJHO8O3FXV7xXiP-cQfuz6B96FFMydPXjptJBFhgAumW__ICWM9E-fKpJf907YN3-I4zVR",
        "Oln3bZ1_tuSPCzGfzh54jGIDNH4Ssq2myR08TjkGta_E2XXEUMV1HAJNE9A6j78Qfh7KHRzBR6zxZrpKAqOSVoUlYZ59VbUu",
        "Xg5cqFz4DLOFl12tHxtGbncJSjQp5cA0wkHi7HMKLxvJ_6RFgFGB6w",
    );
    /// Its signature of `signed`, RS256.
    const PKCS1: &str = concat!(
        "Yk-eoeD2CwqiuZpNu8htYENLP0saSyAeoJSCqdWNNXDWXnJxbboHnG8_PLukjN2HsT7w7ZsZeNuANrDi8jQ-SqMg-baJMkve",
        "MIpAhEZN5JVW41BNyylOL4xh1UznVPdeo6Y7Ah0SL6uMReZypm69BKEgknOtam_7Yli1bl-SLw7E8sygDQhGL9G97py0rTnx",
        "0CwBCJad1jQ4tJnYyhU2dyL4fo_ekCREpiUEM55x43zCYtgyLHLteT-lW-fCDkAkX9sXGd0TLUBWEcNIs7okzkCEGHaFmIln",
        "GfBkFzRRp9UbDhh3KQoGsGczDDI7frSpZ3X7tHOAVy93CkJeBS4nPQ",
    );
    /// The same, PS256.
    const PSS: &str = concat!(
        "S7w6l2YrPObuBd2aRrU7Mijty74d1ZxA3ctF63ThLuu8KdotqZj2UsYyr0VsDW2TT6qe_NiOMJ7ejw7MXeiuKCMrWxe1-47x",
        "SRcllsgRG22XDyX4sOmBdYtgT_zOeyIQdaU0_BXruloyeLN4oNTiCNCzr5nHbQW1-fDTyDcaymfnXdH79O9YKCs_EUVoSSjI",
        "RfR8jXJMpbyJY1toQYnoBuqyDaR6gCMcBiJF29bE5T4WxwoyyOYLRGoBx4MTGqYGKJwUS91u84C3LqFAfHTQzjxCvLJHT3tZ",
        "0-IxhVSQzkEXfuNLvyo9RPC2hTVXTdQEfgYOqhJbsryu7PK0bSWZGw",
    );

    fn keys(more: &serde_json::Value) -> SigningKeys {
        let mut key = json!({ "kty": "RSA", "kid": "one", "n": MODULUS, "e": "AQAB" });
        for (name, value) in more.as_object().unwrap() {
            key[name] = value.clone();
        }
        let unknown = json!({ "kty": "oct", "k": "c2VjcmV0" });
        SigningKeys::read(json!({ "keys": [unknown, key] }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_signature_is_accepted_from_the_key_and_the_algorithm_that_made_it_and_from_no_other() {
        let pkcs1 = BASE64.decode(PKCS1).unwrap();
        let pss = BASE64.decode(PSS).unwrap();
        let any = keys(&json!({}));
        assert_eq!(any.verify("RS256", Some("one"), b"signed", &pkcs1), Ok(()));
        assert_eq!(any.verify("PS256", None, b"signed", &pss), Ok(()));
        assert_eq!(
            any.verify("RS256", Some("one"), b"Signed", &pkcs1),
            Err(SignatureFault::Wrong)
        );
        assert_eq!(
            any.verify("RS512", Some("one"), b"signed", &pkcs1),
            Err(SignatureFault::Wrong)
        );
        assert_eq!(
            any.verify("RS256", Some("two"), b"signed", &pkcs1),
            Err(SignatureFault::UnknownKey)
        );
        for algorithm in ["none", "HS256", "ES256", "EdDSA", ""] {
            assert_eq!(
                any.verify(algorithm, None, b"signed", &pkcs1),
                Err(SignatureFault::UnknownKey),
                "{algorithm}"
            );
        }
        let one = keys(&json!({ "alg": "PS256", "use": "sig" }));
        assert_eq!(one.verify("PS256", Some("one"), b"signed", &pss), Ok(()));
        assert_eq!(
            one.verify("RS256", Some("one"), b"signed", &pkcs1),
            Err(SignatureFault::UnknownKey)
        );
    }

    #[test]
    fn a_set_without_a_key_that_verifies_is_none() {
        for text in [
            "",
            "{}",
            r#"{ "keys": [] }"#,
            r#"{ "keys": [{ "kty": "oct", "k": "c2VjcmV0" }] }"#,
            r#"{ "keys": [{ "kty": "RSA", "n": "AQAB", "e": "AQAB", "use": "enc" }] }"#,
            r#"{ "keys": [{ "kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB" }] }"#,
        ] {
            assert!(SigningKeys::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
