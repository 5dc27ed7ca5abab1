//! One kind of text of a completion as it is sent: what was sent of it stays, whatever attempt it came
//! from.

/// The new attempt's answer does not start with what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Diverged;

/// One kind of text of the completion.
#[derive(Debug, Default)]
pub(super) struct TextChannel {
    /// As the running attempt has it, all blocks of the kind together.
    pub(super) now: String,
    /// Number of bytes of `now` that were sent, unless `promised` holds the sent text.
    pub(super) sent: usize,
    /// Text that was sent of earlier attempts, while `now` does not cover it.
    pub(super) promised: Option<String>,
    /// Nothing more is sent.
    pub(super) closed: bool,
}

// === impl TextChannel ===

impl TextChannel {
    /// Returns the sent text, whichever attempt it came from.
    pub(super) fn sent_text(&self) -> &str {
        self.promised.as_deref().unwrap_or(&self.now[..self.sent])
    }

    /// Adds to the text. Blocks of one kind follow each other; should one grow before another, what
    /// was sent is compared with the whole anew.
    pub(super) fn insert(&mut self, at: usize, text: &str) {
        if at == self.now.len() {
            self.now.push_str(text);
            return;
        }
        let mut now = self.now.clone();
        now.insert_str(at, text);
        self.pin_sent_prefix();
        self.now = now;
    }

    /// Keeps the sent text as the prefix that the next text must start with.
    pub(super) fn pin_sent_prefix(&mut self) {
        if self.promised.is_none() && self.sent > 0 {
            self.now.truncate(self.sent);
            self.promised = Some(std::mem::take(&mut self.now));
        }
        self.sent = 0;
    }

    /// Compares the text with the promise.
    pub(super) fn settle(&mut self) -> Result<(), Diverged> {
        let Some(promised) = self.promised.as_deref().filter(|_| !self.closed) else {
            return Ok(());
        };
        if self.now.len() >= promised.len() && self.now.starts_with(promised) {
            self.sent = promised.len();
            self.promised = None;
            Ok(())
        } else if promised.starts_with(self.now.as_str()) {
            Ok(())
        } else {
            Err(Diverged)
        }
    }

    /// Returns the text that may be sent now, up to this place and all but the last `hold_back`
    /// bytes.
    pub(super) fn next(&mut self, hold_back: usize, place: usize) -> Option<String> {
        if self.closed || self.promised.is_some() {
            return None;
        }
        let end = self.now.len().saturating_sub(hold_back).min(place);
        let end = self.now.floor_char_boundary(end);
        let piece = self
            .now
            .get(self.sent..end)
            .filter(|piece| !piece.is_empty())?
            .to_owned();
        self.sent = end;
        Some(piece)
    }
}
