//! The token that resumes an invocation: it names the invocation and its tenant, and is signed.
//!
//! It is a name and not a permission: its bearer is authorised again. The signature (HMAC-SHA256,
//! RFC 2104) only prevents forged tokens. Nothing in it is secret.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as BASE64};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::domain::ids::{InvocationId, TenantId};

/// Block length of SHA-256, in bytes.
const BLOCK: usize = 64;

/// The key that signs and verifies tokens.
#[derive(Clone)]
pub struct TokenKey([u8; BLOCK]);

/// The content of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resumable {
    /// Its tenant.
    pub tenant: TenantId,
    /// Its id.
    pub invocation: InvocationId,
    /// The step that its client had when it was given the token: epoch and number.
    pub after: (u64, u64),
    /// Until when the token is good.
    pub expires_at: Timestamp,
}

// === impl TokenKey ===

impl TokenKey {
    /// A key derived from a secret, which all replicas share that resume each other's invocations.
    #[must_use]
    pub fn new(secret: &[u8]) -> Self {
        let mut key = [0; BLOCK];
        let digest = Sha256::digest(secret);
        key[..digest.len()].copy_from_slice(&digest);
        Self(key)
    }

    /// Writes a token.
    #[must_use]
    pub fn write(&self, resumable: &Resumable) -> String {
        let Resumable {
            tenant,
            invocation,
            after: (epoch, seq),
            expires_at,
        } = resumable;
        // The ids come last and with their lengths, because they may hold any character.
        let payload = format!(
            "1 {epoch} {seq} {} {} {invocation}{tenant}",
            expires_at.as_second(),
            invocation.as_str().len()
        );
        self.seal(&payload)
    }

    /// Writes a signed text.
    pub(super) fn seal(&self, payload: &str) -> String {
        let signature = self.sign(payload.as_bytes());
        let mut bytes = signature.to_vec();
        bytes.extend_from_slice(payload.as_bytes());
        BASE64.encode(bytes)
    }

    /// Reads a signed text; `None` if it was not signed with this key.
    pub(super) fn open(&self, token: &str) -> Option<String> {
        let bytes = BASE64.decode(token).ok()?;
        let (signature, payload) = bytes.split_at_checked(32)?;
        let expected = self.sign(payload);
        // Compared as a whole, whatever differs.
        let differs = expected
            .iter()
            .zip(signature)
            .fold(0, |differs, (one, other)| differs | (one ^ other));
        if differs != 0 {
            return None;
        }
        std::str::from_utf8(payload).ok().map(str::to_owned)
    }

    /// Reads a token; `None` if it was not signed with this key, or is no longer valid.
    #[must_use]
    pub fn read(&self, token: &str, now: Timestamp) -> Option<Resumable> {
        let payload = self.open(token)?;
        let mut words = payload.splitn(6, ' ');
        let _version = words.next().filter(|version| *version == "1")?;
        let after = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let expires_at = Timestamp::from_second(words.next()?.parse().ok()?).ok()?;
        let length: usize = words.next()?.parse().ok()?;
        let (invocation, tenant) = words.next()?.split_at_checked(length)?;
        let resumable = Resumable {
            tenant: tenant.into(),
            invocation: invocation.into(),
            after,
            expires_at,
        };
        (expires_at > now).then_some(resumable)
    }

    fn sign(&self, message: &[u8]) -> [u8; 32] {
        let pad = |with: u8| self.0.map(|byte| byte ^ with);
        let inner = Sha256::new()
            .chain_update(pad(0x36))
            .chain_update(message)
            .finalize();
        Sha256::new()
            .chain_update(pad(0x5c))
            .chain_update(inner)
            .finalize()
            .into()
    }
}

impl std::fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resumable() -> Resumable {
        Resumable {
            tenant: "acme corp".into(),
            invocation: "0198".into(),
            after: (2, 17),
            expires_at: Timestamp::from_second(1000).unwrap(),
        }
    }

    #[test]
    fn a_valid_token_yields_what_was_signed() {
        let key = TokenKey::new(b"secret");
        let token = key.write(&resumable());
        assert_eq!(
            key.read(&token, Timestamp::from_second(999).unwrap()),
            Some(resumable())
        );
        assert_eq!(
            key.read(&token, Timestamp::from_second(1000).unwrap()),
            None,
            "expired"
        );
    }

    #[test]
    fn a_token_that_was_changed_or_signed_by_another_is_none() {
        let key = TokenKey::new(b"secret");
        let now = Timestamp::UNIX_EPOCH;
        let token = key.write(&resumable());
        assert_eq!(TokenKey::new(b"another secret").read(&token, now), None);
        for index in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert_ne!(
                key.read(&changed, now),
                Some(resumable()).filter(|_| changed != token),
                "{index}"
            );
        }
        for no_token in ["", "x", "AAAA", &"A".repeat(100)] {
            assert_eq!(key.read(no_token, now), None);
        }
    }

    #[test]
    fn signatures_are_hmac_sha256_of_rfc_4231() {
        // Test case 2, whose key is shorter than a block and is used as it is.
        let mut key = [0; BLOCK];
        key[..4].copy_from_slice(b"Jefe");
        let signature = TokenKey(key).sign(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        let pairs = expected
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap());
        let expected: Vec<u8> = pairs
            .map(|pair| u8::from_str_radix(pair, 16).unwrap())
            .collect();
        assert_eq!(signature.to_vec(), expected);
    }
}
