//! Bodies of HTTP responses: whole within a bound, decompressed, and as text in their own charset.

use std::io::Read;

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use flate2::read::{DeflateDecoder, GzDecoder, ZlibDecoder};
use http::{
    header::{CONTENT_ENCODING, CONTENT_TYPE},
    response::Parts,
};

use super::errors;
use crate::{
    domain::{
        failure::{ProviderError, TransportFault},
        units,
    },
    outbound::ReplyBody,
};

/// Returns a whole body within its bound, decompressed.
///
/// # Errors
/// When it breaks off, is longer than the bound, or cannot be decompressed.
pub(super) async fn whole(
    head: &Parts,
    mut body: ReplyBody,
    max_bytes: usize,
) -> Result<Vec<u8>, ProviderError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = body.chunk().await? {
        if chunk.len() > max_bytes.saturating_sub(bytes.len()) {
            return Err(too_large(max_bytes));
        }
        bytes.extend_from_slice(&chunk);
    }
    decompressed(head, bytes, max_bytes)
}

/// Returns the text of an error body, as far as it came within the bounds for these; `None` if
/// there is none.
pub(super) async fn excerpt(head: &Parts, body: ReplyBody) -> Option<String> {
    let bytes = body.excerpt_bytes().await;
    let max_bytes = bytes.len().saturating_mul(100);
    let bytes = decompressed(head, bytes, max_bytes).ok()?;
    let text = match text(charset(head).as_deref(), bytes) {
        Ok(text) => text,
        Err(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    (!text.trim().is_empty()).then_some(text)
}

/// Returns the fault of a result that is larger than it may be.
pub(super) fn too_large(max_bytes: usize) -> ProviderError {
    let most = units::format_bytes(max_bytes as u64);
    let words = format!("the tool's result is larger than {most} (tools.limits.max_reply_bytes)");
    errors::fault(TransportFault::TooLarge, words)
}

/// Returns the charset that a response names.
pub(super) fn charset(head: &Parts) -> Option<String> {
    let value = head.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    value.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"').to_owned())
    })
}

/// Bytes as text: in the charset that is named, in what their first bytes say, or in UTF-8.
///
/// # Errors
/// With the bytes, if they are not text of that kind.
pub(super) fn text(charset: Option<&str>, bytes: Vec<u8>) -> Result<String, Vec<u8>> {
    let named = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let encoding = Encoding::for_bom(&bytes).map_or(named, |(encoding, _)| Some(encoding));
    match encoding {
        Some(encoding) if encoding != UTF_8 || bytes.starts_with(b"\xEF\xBB\xBF") => {
            let (text, _, _) = encoding.decode(&bytes);
            Ok(text.into_owned())
        }
        _ => String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes),
    }
}

/// Returns the text of bytes that are text in any case: what is not UTF-8 is read as the web reads
/// it.
pub(super) fn text_of_any(charset: Option<&str>, bytes: Vec<u8>) -> String {
    text(charset, bytes).unwrap_or_else(|bytes| WINDOWS_1252.decode(&bytes).0.into_owned())
}

/// Returns a body without what its `content-encoding` names, the last first.
fn decompressed(
    head: &Parts,
    mut bytes: Vec<u8>,
    max_bytes: usize,
) -> Result<Vec<u8>, ProviderError> {
    let values = head.headers.get_all(CONTENT_ENCODING).iter();
    let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
    let encodings = values.iter().flat_map(|value| value.split(','));
    let encodings: Vec<String> = encodings
        .map(|encoding| encoding.trim().to_ascii_lowercase())
        .collect();
    for encoding in encodings.iter().rev() {
        if bytes.is_empty() {
            break;
        }
        bytes = match encoding.as_str() {
            "gzip" | "x-gzip" => inflated(GzDecoder::new(&bytes[..]), max_bytes),
            // Some servers leave the header of the format out.
            "deflate" if bytes[0] & 0x0F == 8 => inflated(ZlibDecoder::new(&bytes[..]), max_bytes),
            "deflate" => inflated(DeflateDecoder::new(&bytes[..]), max_bytes),
            "identity" | "" => Ok(bytes),
            other => {
                let words = format!("the tool's result is compressed with `{other}`");
                Err(errors::fault(TransportFault::Protocol, words))
            }
        }?;
    }
    Ok(bytes)
}

fn inflated(decoder: impl Read, max_bytes: usize) -> Result<Vec<u8>, ProviderError> {
    let mut bytes = Vec::new();
    let most = max_bytes as u64;
    let read = decoder.take(most.saturating_add(1)).read_to_end(&mut bytes);
    match read {
        Ok(length) if length > max_bytes => Err(too_large(max_bytes)),
        Ok(_) => Ok(bytes),
        Err(error) => {
            let words = format!("the tool's result cannot be decompressed: {error}");
            Err(errors::fault(TransportFault::Protocol, words))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{
        Compression,
        write::{DeflateEncoder, GzEncoder, ZlibEncoder},
    };
    use proptest::prelude::*;

    use super::*;

    fn head(headers: &[(&str, &str)]) -> Parts {
        let mut response = http::Response::builder();
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap().into_parts().0
    }

    fn compressed(encoding: &str, bytes: &[u8]) -> Vec<u8> {
        let level = Compression::default();
        match encoding {
            "gzip" => {
                let mut encoder = GzEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            "zlib" => {
                let mut encoder = ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
            _ => {
                let mut encoder = DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(bytes).unwrap();
                encoder.finish().unwrap()
            }
        }
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_out_as_it_was(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            for (encoding, named) in [("gzip", "gzip"), ("zlib", "deflate"), ("gzip", "X-GZIP")] {
                let head = head(&[("content-encoding", named)]);
                let got = decompressed(&head, compressed(encoding, &bytes), 400).unwrap();
                prop_assert_eq!(&got, &bytes);
            }
            let twice = compressed("gzip", &compressed("zlib", &bytes));
            let got = decompressed(&head(&[("content-encoding", "deflate, gzip")]), twice, 600).unwrap();
            prop_assert_eq!(&got, &bytes);
        }
    }

    #[test]
    fn deflate_without_its_header_is_read_too() {
        let head = head(&[("content-encoding", "deflate")]);
        let bytes = "plain words, many words, plain words".as_bytes();
        assert_eq!(
            decompressed(&head, compressed("raw", bytes), 99).unwrap(),
            bytes
        );
    }

    #[test]
    fn a_small_body_that_grows_beyond_the_bound_is_too_large_and_a_broken_one_breaks_the_protocol()
    {
        let head = head(&[("content-encoding", "gzip")]);
        let bomb = compressed("gzip", &vec![0; 100_000]);
        let fault = |bytes| decompressed(&head, bytes, 4096).unwrap_err().fault;
        assert_eq!(fault(bomb), Some(TransportFault::TooLarge));
        assert_eq!(fault(b"no gzip".to_vec()), Some(TransportFault::Protocol));
    }

    #[test]
    fn text_is_read_in_the_charset_that_is_named() {
        for (kind, bytes, expected) in [
            ("text/plain; charset=latin1", &b"caf\xE9"[..], "café"),
            ("text/plain;charset=\"ISO-8859-1\"", b"caf\xE9", "café"),
            ("application/json; Charset=utf-16le", b"{\0}\0", "{}"),
            ("text/csv; charset=shift_jis", b"\x93\xFA\x96{", "日本"),
            ("text/plain; charset=utf-8", "über".as_bytes(), "über"),
            ("text/plain", "über".as_bytes(), "über"),
            ("text/plain; charset=made-up", "über".as_bytes(), "über"),
            ("text/plain; charset=utf-8", b"\xEF\xBB\xBFa", "a"),
        ] {
            let charset = charset(&head(&[("content-type", kind)]));
            assert_eq!(
                text(charset.as_deref(), bytes.to_vec()).unwrap(),
                expected,
                "{kind}"
            );
        }
        assert!(text(None, b"caf\xE9".to_vec()).is_err());
        assert_eq!(text_of_any(None, b"caf\xE9".to_vec()), "café");
    }
}
