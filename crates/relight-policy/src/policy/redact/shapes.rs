//! Shapes of secrets and addresses, decided for one token of a text at a time.

/// Text that replaces something removed.
pub(super) const GONE: &str = "[redacted]";
/// Length of a run of letters and digits from which a word counts as a secret.
pub(super) const LONG: usize = 24;
/// Length in bytes of the shortest secret that is recognised by the word before it, or by its
/// prefix.
pub(super) const SHORTEST: usize = 8;

/// Returns the replacement of a word, if it must not be shown.
pub(super) fn replacement(word: &str, plain: bool, bearer: bool) -> Option<&'static str> {
    if bearer {
        Some(GONE)
    } else if plain {
        None
    } else if word.contains('@') && is_mail(word) {
        Some("[e-mail]")
    } else if is_ip(word) {
        Some("[ip]")
    } else if is_secret(word) {
        Some(GONE)
    } else {
        None
    }
}

/// Returns whether a byte belongs to a token.
pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.@+*/%~".contains(&byte)
}

/// Returns the end of a token, and whether it is one short word of prose, in which no secret can
/// be.
pub(super) fn token(text: &[u8]) -> (usize, bool) {
    let lower = 1 + text[1..]
        .iter()
        .take_while(|byte| byte.is_ascii_lowercase())
        .count();
    let rest = text[lower..]
        .iter()
        .take_while(|byte| is_token(**byte))
        .count();
    (
        lower + rest,
        rest == 0 && lower <= LONG && text[0].is_ascii_alphabetic(),
    )
}

fn is_mail(word: &str) -> bool {
    word.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && host.contains('.') && !host.starts_with('.')
    })
}

/// Returns whether a word is an address of the internet protocol, of version 4.
pub(super) fn is_ip(word: &str) -> bool {
    if !word.starts_with(|first: char| first.is_ascii_digit()) {
        return false;
    }
    let mut parts = 0;
    for part in word.trim_end_matches('.').split('.') {
        if part.is_empty()
            || part.len() > 3
            || !part.bytes().all(|b| b.is_ascii_digit())
            || part.parse::<u8>().is_err()
        {
            return false;
        }
        parts += 1;
    }
    parts == 4
}

/// Returns whether a secret follows this word.
pub(super) fn names_secret(word: &[u8]) -> bool {
    const NAMES: [&str; 9] = [
        "bearer",
        "apikey",
        "api_key",
        "api-key",
        "secret",
        "password",
        "access_token",
        "authorization",
        "basic",
    ];
    NAMES.iter().any(|name| {
        word.len()
            .checked_sub(name.len())
            .is_some_and(|from| word[from..].eq_ignore_ascii_case(name.as_bytes()))
    })
}

/// Prefixes of vendors' keys.
const PREFIXES: [&str; 28] = [
    "sk-",
    "sk_",
    "pk-",
    "pk_",
    "rk_",
    "AIza",
    "AKIA",
    "ASIA",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "xai-",
    "gsk_",
    "r8_",
    "nvapi-",
    "pplx-",
    "fw_",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "ya29.",
    "eyJ",
    "csk-",
    "tgp_v1_",
];

/// Returns whether a word has the shape of a key: a vendor's prefix, or a long run of mixed letters
/// and digits.
pub(super) fn is_secret(word: &str) -> bool {
    word.len() >= SHORTEST && PREFIXES.iter().any(|prefix| word.starts_with(prefix))
        || word.len() >= LONG
            && word
                .as_bytes()
                .split(|byte| !byte.is_ascii_alphanumeric())
                .any(is_key)
}

/// Returns whether letters and digits are a key: words of prose and paths are letters with few
/// digits; keys mix both, or are one long run.
fn is_key(run: &[u8]) -> bool {
    if run.len() < LONG {
        return false;
    }
    let digits = run.iter().filter(|byte| byte.is_ascii_digit()).count();
    let has = |is: fn(&u8) -> bool| run.iter().any(is);
    digits >= 4 && run.len() - digits >= 4
        || run.len() >= 32
            && (digits >= 3 || has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase))
}
