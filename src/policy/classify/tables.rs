//! The tables of the classifier, in the order in which they are asked: a rule that stands earlier wins.
//!
//! First what would otherwise be read as something else (traps, common words by their company, the plain reason inside a
//! louder text), then documented codes by family, then phrases of one meaning each, from the most specific meaning to the
//! widest net: a subject and what is said of it, in any words between. Statuses alone come last and stand in
//! [`super::status`]. Tables whose phrases are loose are weighed against all other words (see [`super::likely`]).

use super::rule::Rule;

mod access;
mod asia_codes;
mod billing;
mod capacity;
mod causes;
mod cloud_codes;
mod codes;
mod content;
mod context;
mod crash;
mod details;
mod firm;
mod inner;
mod late_codes;
mod limits;
mod loose;
mod lost;
mod machine_codes;
mod nets;
mod outer;
mod plain;
mod reasons;
mod relay_codes;
mod request;
mod schema;
mod senses;
mod shapes;
mod system_codes;
mod tool_codes;
mod tool_words;
mod transport;
mod traps;
mod vague;

/// The tables in order, and whether their rules stand however likely all words together make another class.
static TABLES: [(&[Rule], bool); 37] = [
    (reasons::RULES, true),
    (shapes::RULES, true),
    (traps::RULES, true),
    (causes::RULES, true),
    (plain::RULES, true),
    (senses::RULES, false),
    (inner::RULES, true),
    (codes::RULES, true),
    (asia_codes::RULES, true),
    (relay_codes::RULES, true),
    (cloud_codes::RULES, true),
    (tool_codes::RULES, true),
    (tool_words::RULES, true),
    (firm::CONTENT, true),
    (content::RULES, false),
    (billing::RULES, true),
    (machine_codes::RULES, true),
    (crash::RULES, true),
    (context::RULES, true),
    (plain::REFUSALS, true),
    (firm::ACCESS, true),
    (access::RULES, false),
    (request::RULES, true),
    (schema::RULES, true),
    (lost::RULES, true),
    (limits::RULES, true),
    (capacity::RULES, true),
    (plain::ENDS, true),
    (system_codes::RULES, false),
    (transport::RULES, false),
    (outer::RULES, false),
    (loose::RULES, false),
    (vague::RULES, false),
    (nets::RULES, false),
    (details::RULES, false),
    (outer::LAST, false),
    (late_codes::RULES, true),
];

/// Every rule, in order.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    TABLES.iter().flat_map(|(rules, _)| *rules)
}

/// Rule of an index in that order.
pub(super) fn nth(index: usize) -> Option<&'static Rule> {
    at(index).map(|(rule, _)| rule)
}

/// Whether the rule of an index stands however likely another class is.
pub(super) fn is_sure(index: usize) -> bool {
    at(index).is_some_and(|(_, sure)| sure)
}

/// The rule of an index, and what is said of its table.
fn at(mut index: usize) -> Option<(&'static Rule, bool)> {
    TABLES.iter().find_map(|(rules, sure)| {
        let rule = rules.get(index).map(|rule| (rule, *sure));
        index = index.saturating_sub(rules.len());
        rule
    })
}
