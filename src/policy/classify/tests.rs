//! The classifier's promises, on fixtures written from documented shapes.

use super::*;

#[test]
fn every_phrase_is_in_the_spelling_of_a_reading() {
    let engine = Engine::new(tables::rules());
    assert!(engine.is_compiled());
}
