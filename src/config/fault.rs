//! The faults of a configuration: all of them at once, each with its place, its value and a
//! correction.
//!
//! A fault is written for the person who edits the file. It shows neither secrets nor values from
//! the environment: the reference is shown instead.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::domain::event::SettingFault;

/// Names within these sections are written by people, who may write a value in the place of one.
const NAMED_BY_PEOPLE: [&str; 3] = [".headers.", ".otlp_headers.", ".env."];

/// A line and column of the file, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

/// One fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Setting, such as `routes.default.targets[1]`; empty for the whole file.
    pub path: String,
    /// Position in the file; `None` for what is not written there.
    pub at: Option<Position>,
    /// The value that is written there; `None` for lists, maps and secrets.
    pub value: Option<String>,
    /// Reason for which it cannot be.
    pub reason: String,
    /// The valid name that was probably meant.
    pub nearest: Option<String>,
    /// If set, `path` is a variable of the environment, and the file is not at fault.
    pub is_variable: bool,
}

/// All faults of a configuration, in the order of the file; at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFaults {
    /// File; `None` if there is none.
    pub file: Option<PathBuf>,
    /// Faults of the file.
    pub faults: Vec<Fault>,
}

// === impl Fault ===

impl Fault {
    /// A fault of the setting at `path`.
    pub(super) fn new(path: impl Into<String>, reason: impl Into<String>) -> Self {
        // One fault is one line, whatever a parser of regular expressions draws.
        let reason: String = reason.into();
        let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            path: path.into(),
            at: None,
            value: None,
            reason,
            nearest: None,
            is_variable: false,
        }
    }

    /// A fault of a variable of the environment.
    pub(super) fn of_variable(name: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            is_variable: true,
            ..Self::new(name, reason)
        }
    }

    /// With its place in the file.
    pub(super) fn at(mut self, at: Option<Position>) -> Self {
        self.at = at;
        self
    }

    /// With the value that is written there.
    pub(super) fn with_value(mut self, value: Option<String>) -> Self {
        self.value = value;
        self
    }

    /// Adds the valid name that was probably meant; if none is near, all of them are listed.
    pub(super) fn with_nearest<'a>(
        mut self,
        name: &str,
        valid: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let valid: Vec<&str> = valid.into_iter().collect();
        self.nearest = nearest(name, &valid).map(str::to_owned);
        if self.nearest.is_none() && !valid.is_empty() {
            self.reason = format!("{}; expected one of {}", self.reason, valid.join(", "));
        }
        self
    }
}

impl Fault {
    /// Returns the fault, with the value that is written there.
    fn description(&self) -> String {
        match &self.value {
            // Reasons that quote the value themselves need no second quotation.
            Some(value) if !self.reason.contains(&format!("`{value}`")) => {
                format!("`{value}` {}", self.reason)
            }
            Some(_) | None => self.reason.clone(),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.at {
            write!(f, "{line}:{column}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.description())?;
        match &self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

// === impl ConfigFaults ===

impl ConfigFaults {
    /// Sorts the faults by place and drops duplicates; `None` when there are none.
    pub(super) fn of(file: Option<&Path>, mut faults: Vec<Fault>) -> Option<Self> {
        // Those without a place come last, in the order in which they were found.
        faults.sort_by_key(|fault| fault.at.map_or((u64::MAX, 0), |at| (at.line, at.column)));
        let mut kept: Vec<Fault> = Vec::with_capacity(faults.len());
        for mut fault in faults {
            fault.path = shown_path(&fault.path);
            if !kept.contains(&fault) {
                kept.push(fault);
            }
        }
        if kept.is_empty() {
            None
        } else {
            Some(Self {
                file: file.map(Path::to_path_buf),
                faults: kept,
            })
        }
    }

    /// Returns what was read, unless there are faults.
    pub(super) fn result<T>(
        file: Option<&Path>,
        faults: Vec<Fault>,
        read: Option<T>,
    ) -> Result<T, Self> {
        match (Self::of(file, faults), read) {
            (None, Some(read)) => Ok(read),
            (Some(faults), _) => Err(faults),
            // Nothing is dropped without a fault; this message covers a defect in that rule.
            (None, None) => Err(Self::of_whole(file, "cannot be read")),
        }
    }

    /// A fault of the whole file.
    pub fn of_whole(file: Option<&Path>, reason: impl Into<String>) -> Self {
        Self {
            file: file.map(Path::to_path_buf),
            faults: vec![Fault::new("", reason)],
        }
    }
}

impl ConfigFaults {
    /// Returns the faults in the form used by events.
    #[must_use]
    pub fn setting_faults(&self) -> Vec<SettingFault> {
        let setting_fault = |fault: &Fault| SettingFault {
            path: fault.path.clone(),
            reason: fault.description(),
            nearest: fault.nearest.clone(),
        };
        self.faults.iter().map(setting_fault).collect()
    }
}

impl fmt::Display for ConfigFaults {
    /// Writes one fault a line, each with the file's name if there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            match &self.file {
                Some(_) if fault.is_variable => write!(f, "{fault}")?,
                Some(file) if fault.at.is_some() => write!(f, "{}:{fault}", file.display())?,
                Some(file) => write!(f, "{}: {fault}", file.display())?,
                None => write!(f, "{fault}")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigFaults {}

/// Returns the path of a setting without a value that was written in the place of a name.
fn shown_path(path: &str) -> String {
    let begin = NAMED_BY_PEOPLE
        .iter()
        .find_map(|section| Some(path.find(section)? + section.len()));
    let end = begin.and_then(|begin| {
        let end = path[begin..].find([':', '=', ' '])?;
        Some(begin + end)
    });
    end.map_or_else(|| path.to_owned(), |end| format!("{}…", &path[..end]))
}

/// Returns the valid name that a wrong one was probably meant to be: at most a third of its letters
/// differ.
#[must_use]
pub fn nearest<'a>(name: &str, valid: &[&'a str]) -> Option<&'a str> {
    let allowed = (name.chars().count() / 3).max(1);
    valid
        .iter()
        .map(|candidate| (edit_distance(name, candidate), *candidate))
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters to insert, delete, replace or swap with their neighbour (optimal string alignment), case
/// ignored.
fn edit_distance(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.to_lowercase().chars().collect();
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut rows = vec![vec![0_usize; right.len() + 1]; left.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=left.len() {
        for j in 1..=right.len() {
            let replaced = usize::from(left[i - 1] != right[j - 1]);
            let mut best = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + replaced);
            if i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[left.len()][right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_the_one_with_the_fewest_changes_and_none_is_near_enough_to_nonsense() {
        let valid = ["gpt", "claude", "gemini"];
        for (name, expected) in [
            ("gtp", Some("gpt")),
            ("GPT", Some("gpt")),
            ("cluade", Some("claude")),
            ("gemeni", Some("gemini")),
            ("llama", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &valid), expected, "{name}");
        }
    }

    #[test]
    fn faults_are_listed_one_a_line_in_the_order_of_the_file_without_duplicates() {
        let late = Fault::new("b", "is wrong").at(Some(Position { line: 9, column: 1 }));
        let early = Fault::new("a", "is no target")
            .at(Some(Position { line: 2, column: 5 }))
            .with_value(Some("gtp".to_owned()))
            .with_nearest("gtp", ["gpt"]);
        let nowhere = Fault::new("c", "is missing");
        let faults = vec![nowhere, late.clone(), early, late];
        let faults = ConfigFaults::of(Some(Path::new("relight.yaml")), faults).unwrap();
        assert_eq!(
            faults.to_string(),
            "relight.yaml:2:5: a: `gtp` is no target; did you mean `gpt`?\n\
             relight.yaml:9:1: b: is wrong\n\
             relight.yaml: c: is missing"
        );
        let listed = faults.setting_faults();
        let nearest = listed[0].nearest.as_deref();
        assert_eq!(
            (listed[0].path.as_str(), listed[0].reason.as_str(), nearest),
            ("a", "`gtp` is no target", Some("gpt"))
        );
        assert_eq!(
            (
                listed.len(),
                listed[2].path.as_str(),
                listed[2].nearest.as_deref()
            ),
            (3, "c", None)
        );
    }
}
