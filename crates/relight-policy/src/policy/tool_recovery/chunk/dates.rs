//! A range of dates or times, which is split into shorter ones.
//!
//! Each part starts where the one before ends: on the next day, or at the same moment if the end
//! does not belong to a range. Times keep the offset that they were written with.

use jiff::{
    ToSpan, Unit,
    civil::{Date, DateTime},
};

/// The shortest part of a range of times, in seconds; that of dates is a day.
const FLOOR: i64 = 3_600;
/// Days from which a range is split by weeks, and from which by months.
const BY_WEEKS: i64 = 14;
const BY_MONTHS: i64 = 45;

/// A range of dates or times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DateRange {
    from: DateTime,
    /// The first moment that does not belong to it.
    end: DateTime,
    form: Form,
    end_included: bool,
}

/// Notation of its ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Form {
    /// `2024-03-01`
    Date,
    /// `2024-03-01T00:00:00` and what follows it (`Z`, `+02:00`, nothing).
    Time {
        separator: char,
        fraction: bool,
        offset: String,
    },
}

/// The length of a part.
#[derive(Debug, Clone, Copy)]
enum DateStep {
    Day,
    /// Seven days, from the start of the range on.
    Week,
    /// A calendar month.
    Month,
}

// === impl DateRange ===

impl DateRange {
    /// Returns the range between two texts of the same form, if its end is after its start.
    pub(super) fn read(from: &str, to: &str, end_included: Option<bool>) -> Option<Self> {
        let ((from, form), (to, other)) = (read(from)?, read(to)?);
        let form = match (form, other) {
            (Form::Date, Form::Date) => Form::Date,
            (
                Form::Time {
                    separator,
                    fraction,
                    offset,
                },
                Form::Time {
                    separator: _,
                    fraction: other_fraction,
                    offset: other_offset,
                },
            ) if offset == other_offset => Form::Time {
                separator,
                fraction: fraction || other_fraction,
                offset,
            },
            _ => return None,
        };
        let end_included = end_included.unwrap_or(form == Form::Date);
        let end = if end_included { form.after(to)? } else { to };
        (end > from).then_some(Self {
            from,
            end,
            form,
            end_included,
        })
    }

    /// In parts of a day, a week or a month by its length, or of as many of these as it takes to
    /// have no more than `max` parts.
    pub(super) fn split(&self, max: usize) -> Vec<Self> {
        let days = self
            .from
            .until((Unit::Day, self.end))
            .map_or(0, |span| i64::from(span.get_days()));
        let step = if days <= BY_WEEKS {
            DateStep::Day
        } else if days <= BY_MONTHS {
            DateStep::Week
        } else {
            DateStep::Month
        };
        for steps in 1.. {
            let Some(parts) = self.by(step, steps, max) else {
                break;
            };
            if parts.len() <= max {
                return parts;
            }
        }
        vec![self.clone()]
    }

    /// Returns two halves, on whole days if it is longer than a day; empty if it is at its floor.
    pub(super) fn halves(&self) -> Vec<Self> {
        let Some(middle) = self.middle() else {
            return Vec::new();
        };
        vec![self.part(self.from, middle), self.part(middle, self.end)]
    }

    pub(super) fn first(&self) -> String {
        self.form.write(self.from)
    }

    pub(super) fn last(&self) -> String {
        let last = if self.end_included {
            self.form.before(self.end)
        } else {
            Some(self.end)
        };
        self.form.write(last.unwrap_or(self.end))
    }

    pub(super) fn label(&self) -> String {
        format!("{}..{}", self.first(), self.last())
    }

    fn part(&self, from: DateTime, end: DateTime) -> Self {
        Self {
            from,
            end,
            ..self.clone()
        }
    }

    /// In parts of so many steps; stops if there are surely too many, `None` if time has no more
    /// steps.
    fn by(&self, step: DateStep, steps: i64, max: usize) -> Option<Vec<Self>> {
        let mut parts = Vec::new();
        let mut from = self.from;
        while from < self.end && parts.len() <= max {
            let end = match step {
                DateStep::Day => midnight(from).checked_add(steps.days()).ok()?,
                DateStep::Week => from.checked_add(steps.weeks()).ok()?,
                DateStep::Month => midnight(from.first_of_month())
                    .checked_add(steps.months())
                    .ok()?,
            };
            let end = end.min(self.end);
            parts.push(self.part(from, end));
            from = end;
        }
        Some(parts)
    }

    fn middle(&self) -> Option<DateTime> {
        let seconds = self
            .from
            .until((Unit::Second, self.end))
            .ok()?
            .get_seconds();
        let middle = self.from.checked_add((seconds / 2).seconds()).ok()?;
        // Rounded up, so that the first half is the longer one.
        let day = if middle == midnight(middle) {
            middle
        } else {
            midnight(middle).checked_add(1.day()).ok()?
        };
        if day > self.from && day < self.end {
            return Some(day);
        }
        let is_time = matches!(self.form, Form::Time { .. });
        (is_time && seconds >= 2 * FLOOR).then_some(middle)
    }
}

// === impl Form ===

impl Form {
    /// Returns the moment (or day) after the last one that belongs to a range.
    fn after(&self, last: DateTime) -> Option<DateTime> {
        self.shifted(last, 1)
    }

    fn before(&self, end: DateTime) -> Option<DateTime> {
        self.shifted(end, -1)
    }

    fn shifted(&self, at: DateTime, units: i64) -> Option<DateTime> {
        let span = match self {
            Self::Date => units.days(),
            Self::Time {
                fraction: false, ..
            } => units.seconds(),
            Self::Time { fraction: true, .. } => units.milliseconds(),
        };
        at.checked_add(span).ok()
    }

    fn write(&self, at: DateTime) -> String {
        match self {
            Self::Date => at.date().to_string(),
            Self::Time {
                separator,
                fraction,
                offset,
            } => {
                let time = at.time();
                let date = at.date();
                let clock = format!(
                    "{:02}:{:02}:{:02}",
                    time.hour(),
                    time.minute(),
                    time.second()
                );
                let millis = if *fraction {
                    format!(".{:03}", time.subsec_nanosecond() / 1_000_000)
                } else {
                    String::new()
                };
                format!("{date}{separator}{clock}{millis}{offset}")
            }
        }
    }
}

/// Reads a date or a time, and how it is written.
fn read(text: &str) -> Option<(DateTime, Form)> {
    if text.len() < 10 || !text.is_char_boundary(10) {
        return None;
    }
    let (date, rest) = text.split_at(10);
    let date: Date = date.parse().ok()?;
    if rest.is_empty() {
        return Some((date.to_datetime(jiff::civil::Time::midnight()), Form::Date));
    }
    let separator = rest
        .chars()
        .next()
        .filter(|first| matches!(first, 'T' | 't' | ' '))?;
    let rest = &rest[1..];
    let ends = rest
        .find(|letter: char| !(letter.is_ascii_digit() || matches!(letter, ':' | '.')))
        .unwrap_or(rest.len());
    let (clock, offset) = rest.split_at(ends);
    let time: jiff::civil::Time = clock.parse().ok()?;
    let is_offset = offset.is_empty()
        || matches!(offset, "Z" | "z")
        || (offset.starts_with(['+', '-'])
            && offset[1..]
                .chars()
                .all(|letter| letter.is_ascii_digit() || letter == ':'));
    // Finer than a millisecond is not written back.
    let is_fine = time.subsec_nanosecond() % 1_000_000 != 0;
    (is_offset && !is_fine).then(|| {
        let fraction = clock.contains('.');
        (
            date.to_datetime(time),
            Form::Time {
                separator,
                fraction,
                offset: offset.to_owned(),
            },
        )
    })
}

fn midnight(at: DateTime) -> DateTime {
    at.date().to_datetime(jiff::civil::Time::midnight())
}
