//! The tables of the classifier, in the order in which they are asked: a rule that stands earlier wins.
//!
//! First what would otherwise be read as something else (traps, common words by their company, the plain reason inside a
//! louder text), then documented codes by family, then phrases of one meaning each, from the most specific meaning to the
//! widest net: a subject and what is said of it, in any words between. Statuses alone come last and stand in
//! [`super::status`]. What a table says is weighed against all other words, but for what is named exactly (see
//! [`super::likely`]).

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

/// How much likelier all words together have to make another class to overrule a rule, as a power of e: where one loose
/// phrase decides, where a phrase names its meaning, and where nothing overrules it.
pub(super) const LOOSE: Option<f64> = Some(1.5);
const FIRM: Option<f64> = Some(2.5);
const SURE: Option<f64> = None;

/// The tables in order, and how firm their rules stand.
static TABLES: [(&[Rule], Option<f64>); 36] = [
    (reasons::RULES, FIRM),
    (shapes::RULES, FIRM),
    (traps::RULES, FIRM),
    (causes::RULES, LOOSE),
    (plain::RULES, FIRM),
    (senses::RULES, LOOSE),
    (inner::RULES, FIRM),
    (codes::RULES, SURE),
    (asia_codes::RULES, SURE),
    (relay_codes::RULES, SURE),
    (cloud_codes::RULES, SURE),
    (tool_codes::RULES, FIRM),
    (tool_words::RULES, SURE),
    (firm::CONTENT, SURE),
    (content::RULES, LOOSE),
    (billing::RULES, SURE),
    (machine_codes::RULES, SURE),
    (crash::RULES, FIRM),
    (context::RULES, SURE),
    (firm::ACCESS, SURE),
    (access::RULES, LOOSE),
    (request::RULES, SURE),
    (schema::RULES, FIRM),
    (lost::RULES, LOOSE),
    (limits::RULES, FIRM),
    (capacity::RULES, FIRM),
    (plain::ENDS, SURE),
    (system_codes::RULES, LOOSE),
    (transport::RULES, LOOSE),
    (outer::RULES, LOOSE),
    (loose::RULES, LOOSE),
    (vague::RULES, LOOSE),
    (nets::RULES, LOOSE),
    (details::RULES, LOOSE),
    (outer::LAST, LOOSE),
    (late_codes::RULES, FIRM),
];

/// Every rule, in order.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    TABLES.iter().flat_map(|(rules, _)| *rules)
}

/// The rule of an index in that order, and how firm it stands.
pub(super) fn nth(mut index: usize) -> Option<(&'static Rule, Option<f64>)> {
    TABLES.iter().find_map(|(rules, margin)| {
        let rule = rules.get(index).map(|rule| (rule, *margin));
        index = index.saturating_sub(rules.len());
        rule
    })
}
