//! The tables of the classifier, in the order in which they are asked: a rule that stands earlier wins.
//!
//! First what would otherwise be read as something else (traps, common words by their company, the plain reason inside a
//! louder text), then documented codes by family, then phrases of one meaning each, from the most specific meaning to the
//! widest net: a subject and what is said of it, in any words between. Statuses alone come last and stand in
//! [`super::status`].

use super::rule::Rule;

mod access;
mod asia_codes;
mod billing;
mod capacity;
mod cloud_codes;
mod codes;
mod content;
mod context;
mod crash;
mod inner;
mod late_codes;
mod limits;
mod loose;
mod lost;
mod machine_codes;
mod nets;
mod relay_codes;
mod request;
mod schema;
mod senses;
mod system_codes;
mod tool_codes;
mod tool_words;
mod transport;
mod traps;
mod vague;

/// Every rule, in order.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    [
        traps::RULES,
        senses::RULES,
        inner::RULES,
        codes::RULES,
        asia_codes::RULES,
        relay_codes::RULES,
        cloud_codes::RULES,
        tool_codes::RULES,
        tool_words::RULES,
        content::RULES,
        billing::RULES,
        machine_codes::RULES,
        crash::RULES,
        context::RULES,
        access::RULES,
        request::RULES,
        schema::RULES,
        lost::RULES,
        limits::RULES,
        capacity::RULES,
        system_codes::RULES,
        transport::RULES,
        loose::RULES,
        vague::RULES,
        nets::RULES,
        late_codes::RULES,
    ]
    .into_iter()
    .flatten()
}

/// Rule of an index in that order.
pub(super) fn nth(index: usize) -> Option<&'static Rule> {
    rules().nth(index)
}
