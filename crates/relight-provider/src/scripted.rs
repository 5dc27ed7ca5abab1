//! The embedded provider: plays a script instead of calling a model, so that Relight runs with no
//! network and no key.
//!
//! Every failure that a real provider shows can be played, in order or by seeded chance, with the
//! time of `tokio::time` (a paused clock works). It does not communicate with anything outside the
//! process.

mod play;
mod script;
#[cfg(test)]
pub(super) mod tests;

use std::{collections::HashMap, fmt, sync::Arc};

use futures_util::{TryStreamExt as _, stream::iter};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use super::{ProviderFuture, spec::StreamMode};
use crate::domain::{
    completion::Delta,
    ids::TargetId,
    message::{ModelCall, Part},
    wire::{DeltaStream, ProviderRequest},
};

pub use self::script::{Outage, Script, Step};

/// Phrases of Relight's notes by which a scripted model recognises that it was informed of a
/// failure.
const NOTE_PHRASES: [&str; 2] = ["previous model call failed", "previous call failed"];

/// Plays a script; keeps the position in it for each target.
#[derive(Clone)]
pub struct Player {
    script: Arc<Script>,
    stream: StreamMode,
    progress: Arc<Mutex<HashMap<TargetId, PlayProgress>>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct PlayProgress {
    calls: u32,
    steps_played: usize,
    outage_began: Option<(u32, Instant)>,
}

// === impl Player ===

impl Player {
    /// A player at the beginning of a script.
    #[must_use]
    pub fn new(script: Script, stream: StreamMode) -> Self {
        Self {
            script: Arc::new(script),
            stream,
            progress: Arc::default(),
        }
    }

    /// Plays the next step for the call's target; the step is used up at once, also when the future
    /// is dropped.
    pub(super) fn answer(&self, call: ProviderRequest) -> ProviderFuture {
        let step = self.next_step(&call);
        let informed = has_note(&call.call);
        let streams = self.stream.streams(&call);
        Box::pin(async move {
            let deltas = play::play(step, informed, &call).await?;
            if streams {
                return Ok(deltas);
            }
            let document: Vec<Delta> = deltas.try_collect().await.map_err(|error| *error)?;
            Ok(Box::pin(iter(document.into_iter().map(Ok))) as DeltaStream)
        })
    }

    fn next_step(&self, call: &ProviderRequest) -> Step {
        let play = self.script.play_for(&call.target.model);
        let mut all = self.progress.lock();
        let progress = all.entry(call.target.id.clone()).or_default();
        progress.calls = progress.calls.saturating_add(1);
        if let Some(outage) = &play.outage
            && progress.in_outage(outage, Instant::now())
        {
            return (*outage.step).clone();
        }
        if let Some(step) = play.steps.get(progress.steps_played) {
            progress.steps_played += 1;
            return step.clone();
        }
        let mut rng = roll(self.script.seed, &call.target.id, progress.calls);
        for chance in &play.probabilities {
            if rng < chance.probability {
                return chance.step.clone();
            }
            rng -= chance.probability;
        }
        play.otherwise
    }
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player")
            .field("script", &self.script)
            .finish_non_exhaustive()
    }
}

// === impl PlayProgress ===

impl PlayProgress {
    fn in_outage(&mut self, outage: &Outage, now: Instant) -> bool {
        if self.calls <= outage.after_attempts {
            return false;
        }
        let (first_call, began) = *self.outage_began.get_or_insert((self.calls, now));
        self.calls - first_call < outage.attempts || now.duration_since(began) < outage.r#for
    }
}

/// Returns whether the conversation holds a note about a failed call.
fn has_note(call: &ModelCall) -> bool {
    call.messages
        .iter()
        .flat_map(|message| &message.parts)
        .any(|part| {
            let text = match part {
                Part::Text(text) => text,
                Part::ToolResult(result) => &result.content,
                Part::Image(_)
                | Part::File(_)
                | Part::Reasoning(_)
                | Part::ToolCall(_)
                | Part::Refusal(_) => return false,
            };
            NOTE_PHRASES.iter().any(|words| text.contains(words))
        })
}

/// Returns a number from 0 to 1 that depends on the seed, the target and the call's index alone.
fn roll(seed: u64, target: &TargetId, call: u32) -> f64 {
    let mut hasher = Sha256::new();
    hasher.update(seed.to_be_bytes());
    hasher.update(target.as_str().as_bytes());
    hasher.update(call.to_be_bytes());
    let digest = hasher.finalize();
    let bits = digest
        .iter()
        .take(4)
        .fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte));
    f64::from(bits) / (f64::from(u32::MAX) + 1.0)
}
