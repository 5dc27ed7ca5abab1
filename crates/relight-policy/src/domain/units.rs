//! Values with their units in them, as people write them in configuration: `250ms`, `1s`, `5m`,
//! `8MiB`.
//!
//! A number without a unit is rejected, because its unit would be a guess.

use std::time::Duration;

/// Reads a duration such as `250ms`, `1.5s`, `5m`, `24h`, or several parts in a row (`1m30s`).
///
/// # Errors
/// When a unit is missing or unknown, or the number is negative or too large.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err("is empty; write a number with a unit, such as 250ms, 1s or 5m".to_owned());
    }
    let mut total = 0.0_f64;
    while !rest.is_empty() {
        let (number, unit, tail) = split_number(rest)?;
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            "" => {
                return Err(format!(
                    "`{text}` has no unit; write ms, s, m, h or d after the number"
                ));
            }
            other => {
                return Err(format!(
                    "`{other}` is no unit of time; use ms, s, m, h or d"
                ));
            }
        };
        total += number * seconds;
        rest = tail.trim_start();
    }
    Duration::try_from_secs_f64(total).map_err(|_| format!("`{text}` is out of range"))
}

/// Writes a duration as it would be read back.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis.is_multiple_of(3_600_000) && millis > 0 {
        format!("{}h", millis / 3_600_000)
    } else if millis.is_multiple_of(60_000) && millis > 0 {
        format!("{}m", millis / 60_000)
    } else if millis.is_multiple_of(1000) {
        format!("{}s", millis / 1000)
    } else {
        format!("{millis}ms")
    }
}

/// Writes a duration as people read it, upwards: `340 ms`, `2.4 s`, `3 min`.
#[must_use]
pub fn duration_text(duration: Duration) -> String {
    match duration.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        ms @ 1000..120_000 => {
            let tenths = ms.div_ceil(100);
            if tenths.is_multiple_of(10) {
                format!("{} s", tenths / 10)
            } else {
                format!("{}.{} s", tenths / 10, tenths % 10)
            }
        }
        ms => format!("{} min", ms.div_ceil(60_000)),
    }
}

/// Reads a size such as `512B`, `64KiB`, `8MiB`, `1GiB` (or `KB`, `MB`, `GB` of 1000).
///
/// # Errors
/// When a unit is missing or unknown, or the size is out of range.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let (number, unit, tail) = split_number(text.trim())?;
    if !tail.trim().is_empty() {
        return Err(format!("`{text}` is not one size"));
    }
    let factor: u64 = match unit {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "" => {
            return Err(format!(
                "`{text}` has no unit; write B, KiB, MiB or GiB after the number"
            ));
        }
        other => {
            return Err(format!(
                "`{other}` is no unit of size; use B, KiB, MiB or GiB"
            ));
        }
    };
    // A size beyond 2^53 bytes is refused, so the float is exact.
    #[expect(clippy::cast_precision_loss, reason = "factors are small powers")]
    let bytes = number * factor as f64;
    if !(0.0..9.0e15).contains(&bytes) {
        return Err(format!("`{text}` is out of range"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked above"
    )]
    Ok(bytes as u64)
}

/// Writes a size as it would be read back.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    for (factor, unit) in [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

fn split_number(text: &str) -> Result<(f64, &str, &str), String> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end]
        .parse()
        .map_err(|_| format!("`{text}` does not begin with a number"))?;
    let rest = &text[end..];
    let unit_end = rest
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(rest.len());
    Ok((number, &rest[..unit_end], &rest[unit_end..]))
}

/// For `#[serde(with = "units::duration")]`: a duration with its unit. Give schemars
/// `with = "String"`.
pub mod duration {
    use std::time::Duration;

    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes it with its unit.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_duration(*duration))
    }

    /// Reads it with its unit.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid duration with a unit.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_duration(&text).map_err(D::Error::custom)
    }
}

/// Serde of durations with their units that may be left out.
pub mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    struct WithUnit(#[serde(with = "super::duration")] Duration);

    /// Writes `1m30s`, or nothing.
    ///
    /// # Errors
    /// What the serializer reports.
    pub fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::duration::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Reads `1m30s`, or nothing.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid duration.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<WithUnit>::deserialize(deserializer)?.map(|with_unit| with_unit.0))
    }
}

/// For `#[serde(with = "units::bytes")]`: a size with its unit. Give schemars `with = "String"`.
pub mod bytes {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    /// Writes it with its unit.
    ///
    /// # Errors
    /// When the serializer fails.
    pub fn serialize<S: Serializer>(bytes: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&super::format_bytes(*bytes))
    }

    /// Reads it with its unit.
    ///
    /// # Errors
    /// Returns an error if the text is not a valid size with a unit.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = String::deserialize(deserializer)?;
        super::parse_bytes(&text).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_carry_their_unit_and_survive_being_written() {
        for (text, millis) in [
            ("250ms", 250),
            ("1s", 1000),
            ("1.5s", 1500),
            ("5m", 300_000),
            ("1m30s", 90_000),
        ] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(duration.as_millis(), millis, "{text}");
            assert_eq!(
                parse_duration(&format_duration(duration)).unwrap(),
                duration,
                "{text}"
            );
        }
    }

    #[test]
    fn a_number_without_a_unit_is_refused() {
        for text in ["5", "", "s", "5 parsecs", "-1s", "1e999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["5", "8Mib", "", "1KiB 2KiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_carry_their_unit_and_survive_being_written() {
        for (text, bytes) in [
            ("512B", 512),
            ("64KiB", 65_536),
            ("8MiB", 8 << 20),
            ("1MB", 1_000_000),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
            assert_eq!(parse_bytes(&format_bytes(bytes)).unwrap(), bytes, "{text}");
        }
    }
}
