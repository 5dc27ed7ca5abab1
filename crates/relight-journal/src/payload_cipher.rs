//! Encrypts a database's stored inputs and completions with keys from the configuration.
//!
//! AES-256-GCM with random nonces. Every invocation and every thread has a key of its own, derived
//! by HKDF-SHA256, so that no key encrypts many texts; the place of a text is authenticated with
//! it, so that write access to the database is not enough to swap texts. Keys are not printed.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD as BASE64};
use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, MAX_TAG_LEN, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Prk, Salt},
    rand::{SecureRandom as _, SystemRandom},
};

use super::JournalError;

/// Prefix of an encrypted text; neither JSON nor a fingerprint starts with it.
const MARK: &str = "relight1.";

/// Length of a key's name in bytes; the name reveals nothing about the key.
const NAME: usize = 8;

/// The keys; without any, texts are stored in plain.
#[derive(Clone, Default)]
pub struct PayloadCipher {
    keys: Arc<[Key]>,
}

struct Key {
    name: String,
    root: Prk,
}

/// The keys of one invocation or thread.
pub(super) struct Drawer<'a> {
    keys: Vec<(&'a str, LessSafeKey)>,
    /// Number of entries that there should be: if one could not be derived, nothing is written at
    /// all.
    expected: usize,
}

// === impl PayloadCipher ===

impl PayloadCipher {
    /// A vault whose first secret encrypts, and all of which decrypt.
    pub fn new<'a>(secrets: impl IntoIterator<Item = &'a str>) -> Self {
        let salt = Salt::new(HKDF_SHA256, b"relight journal");
        let key = |secret: &str| {
            let root = salt.extract(secret.as_bytes());
            let name = BASE64.encode(derive::<NAME>(&root, &[b"name"]).unwrap_or_default());
            Key { name, root }
        };
        Self {
            keys: secrets.into_iter().map(key).collect(),
        }
    }

    /// Returns the keys of an invocation.
    pub(super) fn of_invocation(&self, id: &str) -> Drawer<'_> {
        self.drawer(&["invocation", id])
    }

    /// Returns the keys of a thread.
    pub(super) fn of_thread(&self, tenant: &str, id: &str) -> Drawer<'_> {
        self.drawer(&["thread", tenant, id])
    }

    fn drawer(&self, whose: &[&str]) -> Drawer<'_> {
        // Each part with its length, because ids may hold any character.
        let whose: String = whose
            .iter()
            .map(|part| format!("{}:{part}", part.len()))
            .collect();
        let own = |key: &Key| derive::<32>(&key.root, &[b"content ", whose.as_bytes()]);
        let usable = |bytes: [u8; 32]| {
            UnboundKey::new(&AES_256_GCM, &bytes)
                .ok()
                .map(LessSafeKey::new)
        };
        let keys = self
            .keys
            .iter()
            .filter_map(|key| Some((key.name.as_str(), usable(own(key)?)?)));
        Drawer {
            keys: keys.collect(),
            expected: self.keys.len(),
        }
    }
}

impl fmt::Debug for PayloadCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vault")
            .field("keys", &self.keys.len())
            .finish()
    }
}

// === impl Drawer ===

impl Drawer<'_> {
    /// The text as it is written to its place: a column, and a number within it.
    pub(super) fn seal(
        &self,
        column: &'static str,
        number: u64,
        text: String,
    ) -> Result<String, JournalError> {
        let failed = || JournalError::Unavailable(format!("{column} cannot be encrypted"));
        if self.keys.len() < self.expected {
            return Err(failed());
        }
        let Some((name, key)) = self.keys.first() else {
            return Ok(text);
        };
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).map_err(|_| failed())?;
        let mut bytes = Vec::with_capacity(NONCE_LEN + text.len() + MAX_TAG_LEN);
        bytes.extend_from_slice(&nonce);
        bytes.extend_from_slice(text.as_bytes());
        let place = Aad::from(place(column, number));
        let tag = key
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                place,
                &mut bytes[NONCE_LEN..],
            )
            .map_err(|_| failed())?;
        bytes.extend_from_slice(tag.as_ref());
        Ok(format!("{MARK}{name}.{}", BASE64.encode(bytes)))
    }

    /// The text as it was before it was written. One that is not encrypted was written before there
    /// was a key.
    pub(super) fn open(
        &self,
        column: &'static str,
        number: u64,
        text: String,
    ) -> Result<String, JournalError> {
        let Some(sealed) = text.strip_prefix(MARK) else {
            return Ok(text);
        };
        let corrupt = |why: &str| JournalError::Corrupt(format!("{column} {why}"));
        let (name, sealed) = sealed
            .split_once('.')
            .ok_or_else(|| corrupt("is encrypted in an unknown way"))?;
        let own = self.keys.iter().find(|(known, _)| *known == name);
        let (_, key) = own.ok_or_else(|| {
            corrupt("is encrypted by a key that is not in journal.encryption_keys")
        })?;
        let damaged = || corrupt("was changed after it was encrypted, or moved to another place");
        let mut bytes = BASE64.decode(sealed).map_err(|_| damaged())?;
        let (nonce, content) = bytes.split_at_mut_checked(NONCE_LEN).ok_or_else(damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| damaged())?;
        let plain = key
            .open_in_place(nonce, Aad::from(place(column, number)), content)
            .map_err(|_| damaged())?;
        String::from_utf8(plain.to_vec()).map_err(|_| damaged())
    }
}

fn place(column: &str, number: u64) -> Vec<u8> {
    format!("{column} {number}").into_bytes()
}

fn derive<const LENGTH: usize>(root: &Prk, what: &[&[u8]]) -> Option<[u8; LENGTH]> {
    struct Length(usize);
    impl ring::hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut bytes = [0; LENGTH];
    // Fails only for lengths far beyond these.
    root.expand(what, Length(LENGTH))
        .and_then(|okm| okm.fill(&mut bytes))
        .ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "one secret of more than 32 characters";
    const OTHER: &str = "another secret of more than 32 chars";

    fn text() -> String {
        "{\"a\":\"naïve\"}".to_owned()
    }

    #[test]
    fn a_text_comes_back_from_its_own_place_and_from_no_other() {
        let cipher = PayloadCipher::new([ONE]);
        let mine = cipher.of_invocation("a");
        let theirs = cipher.of_invocation("b");
        let sealed = mine.seal("step", 7, text()).unwrap();
        assert!(!sealed.contains("naïve") && sealed.starts_with(MARK));
        assert_eq!(mine.open("step", 7, sealed.clone()), Ok(text()));
        for other in [
            mine.open("step", 8, sealed.clone()),
            mine.open("outcome", 7, sealed.clone()),
        ] {
            assert!(matches!(other, Err(JournalError::Corrupt(_))), "{other:?}");
        }
        assert!(
            theirs.open("step", 7, sealed.clone()).is_err(),
            "another invocation's"
        );
        assert!(
            cipher
                .of_thread("a", "")
                .open("step", 7, sealed.clone())
                .is_err(),
            "a thread's"
        );
        assert_ne!(
            mine.seal("step", 7, text()).unwrap(),
            sealed,
            "never the same twice"
        );
    }

    #[test]
    fn any_changed_character_is_found_out() {
        let cipher = PayloadCipher::new([ONE]);
        let sealed = cipher.of_invocation("a").seal("step", 1, text()).unwrap();
        for index in MARK.len()..sealed.len() {
            let mut bytes = sealed.clone().into_bytes();
            bytes[index] = if bytes[index] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(
                cipher.of_invocation("a").open("step", 1, changed).is_err(),
                "{index}"
            );
        }
    }

    #[test]
    fn keys_are_changed_by_putting_a_new_one_before_the_old() {
        let old = PayloadCipher::new([ONE])
            .of_invocation("a")
            .seal("step", 1, text())
            .unwrap();
        let both = PayloadCipher::new([OTHER, ONE]);
        assert_eq!(
            both.of_invocation("a").open("step", 1, old.clone()),
            Ok(text())
        );
        let new = both.of_invocation("a").seal("step", 1, text()).unwrap();
        assert_eq!(
            PayloadCipher::new([OTHER])
                .of_invocation("a")
                .open("step", 1, new),
            Ok(text())
        );
        let Err(JournalError::Corrupt(why)) = PayloadCipher::new([OTHER])
            .of_invocation("a")
            .open("step", 1, old)
        else {
            panic!("it has no such key")
        };
        assert!(why.contains("encryption_keys"), "{why}");
    }

    #[test]
    fn without_a_key_texts_stay_as_they_are_and_stay_readable_when_there_is_one() {
        let plain = PayloadCipher::default()
            .of_invocation("a")
            .seal("step", 1, text())
            .unwrap();
        assert_eq!(plain, text());
        assert_eq!(
            PayloadCipher::new([ONE])
                .of_invocation("a")
                .open("step", 1, plain),
            Ok(text())
        );
    }

    #[test]
    fn a_vault_shows_no_key() {
        assert_eq!(
            format!("{:?}", PayloadCipher::new([ONE])),
            "Vault { keys: 1 }"
        );
    }
}
