//! Words of operators: the last one about a target holds at every replica, also at those that start
//! later.

use super::{FleetCore, FleetEffect};
use crate::{
    fact::{FactSubject, OperatorWord, ReplicaFact},
    store::RecordWrite,
};

impl FleetCore {
    /// An operator spoke to this replica, which did already what is demanded.
    pub(super) fn take_word(&mut self, subject: FactSubject, word: OperatorWord) {
        let known = self.words.get(&subject).map_or(0, |known| known.epoch);
        let epoch = word.epoch.max(known + 1);
        let word = OperatorWord { epoch, ..word };
        self.write_word(&subject, &word);
        self.words.insert(subject, word);
    }

    /// Takes over words that are newer, and writes those again that the store lost. Of two words
    /// that were said at once, the store has one, which counts. In the place of a word the store may
    /// have one of a later version, which this one cannot read.
    pub(super) fn learn_words(
        &mut self,
        stored: Vec<(FactSubject, OperatorWord)>,
        unread: &[FactSubject],
    ) {
        let mut lost = self.words.clone();
        lost.retain(|subject, _| !unread.contains(subject));
        for (subject, word) in stored {
            match self.words.get(&subject) {
                Some(known) if known.epoch > word.epoch => continue,
                Some(known) if *known == word => {}
                Some(_) | None => {
                    self.words.insert(subject.clone(), word.clone());
                    let effect = FleetEffect::Operate(subject.clone(), word);
                    self.outcome.effects.push(effect);
                }
            }
            lost.remove(&subject);
        }
        for (subject, word) in lost {
            self.write_word(&subject, &word);
        }
    }

    fn write_word(&mut self, subject: &FactSubject, word: &OperatorWord) {
        self.outcome.is_news = true;
        self.outcome.writes.push(RecordWrite {
            subject: subject.0.clone(),
            owner: String::new(),
            epoch: word.epoch,
            value: Some(ReplicaFact::Word(word.clone()).text()),
            lifetime: None,
        });
    }
}
