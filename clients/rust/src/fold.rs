//! The caller's part of an invocation's events, by the rules at the head of `stream.proto`.

use std::collections::BTreeMap;

use relight_proto::v1::{self, stream_event::Body};
use sha2::{Digest as _, Sha256};

/// An event that does not fit what is held; the invocation has to be read again from its
/// beginning.
#[derive(Debug)]
pub(crate) struct Misfit(pub(crate) String);

/// A piece of an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Block {
    kind: i32,
    call_id: String,
    tool_name: String,
    content: String,
    is_stopped: bool,
    /// Whether a call of a tool may be acted on.
    is_committed: bool,
}

impl Block {
    pub(crate) fn is(&self, kind: v1::BlockKind) -> bool {
        self.kind == i32::from(kind)
    }
}

/// All that a caller holds of one invocation; it outlives connections.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    pub(crate) blocks: BTreeMap<u32, Block>,
    pub(crate) invocation_id: String,
    /// The last event; `None` before the first.
    pub(crate) cursor: Option<v1::StreamCursor>,
    pub(crate) terminal: Option<v1::Terminal>,
}

impl Fold {
    /// Folds one event; returns whether it was new and numbered, or a snapshot. One that does not
    /// fit changes nothing.
    pub(crate) fn apply(&mut self, event: &v1::StreamEvent) -> Result<bool, Misfit> {
        if !self.invocation_id.is_empty() && event.invocation_id != self.invocation_id {
            return Err(Misfit("an event of another invocation".to_owned()));
        }
        self.invocation_id.clone_from(&event.invocation_id);
        let cursor = v1::StreamCursor {
            epoch: event.epoch,
            seq: event.seq,
        };
        match &event.body {
            Some(Body::Accepted(_) | Body::Heartbeat(_)) => return Ok(false),
            Some(Body::Snapshot(snapshot)) => {
                self.blocks = restored(snapshot)?;
                self.cursor = (event.seq > 0).then_some(cursor);
                self.terminal = None;
                return Ok(true);
            }
            _ => {}
        }
        if !self.is_next(event)? {
            return Ok(false);
        }
        match &event.body {
            Some(Body::BlockStart(start)) => begin(&mut self.blocks, start)?,
            Some(Body::BlockDelta(delta)) => append(&mut self.blocks, delta)?,
            Some(Body::BlockStop(stopped)) => stop(&mut self.blocks, stopped)?,
            Some(Body::Rewind(rewind)) => self.rewind(rewind)?,
            Some(Body::Terminal(terminal)) => {
                if terminal.result_hash != hash_of(&self.blocks) {
                    return Err(Misfit("the hash of the result differs".to_owned()));
                }
                self.terminal = Some(terminal.clone());
            }
            // Any other body concerns the way to the answer, and changes nothing that is held.
            _ => {}
        }
        self.cursor = Some(cursor);
        Ok(true)
    }

    /// Returns all text of the answer, as `Completion.text` has it.
    pub(crate) fn text(&self) -> String {
        let texts: Vec<&str> = self
            .blocks
            .values()
            .filter(|block| block.is(v1::BlockKind::Text))
            .map(|block| block.content.as_str())
            .collect();
        texts.join("\n")
    }

    /// Returns the calls of tools that may be acted on.
    pub(crate) fn tool_calls(&self) -> Vec<v1::ToolCallPart> {
        self.blocks
            .values()
            .filter(|block| block.is(v1::BlockKind::ToolCall) && block.is_committed)
            .map(|block| v1::ToolCallPart {
                id: block.call_id.clone(),
                name: block.tool_name.clone(),
                arguments_json: block.content.clone(),
            })
            .collect()
    }

    /// Returns whether the event is new; an event that was seen is not.
    fn is_next(&self, event: &v1::StreamEvent) -> Result<bool, Misfit> {
        let (epoch, last) = self
            .cursor
            .map_or((event.epoch, 0), |cursor| (cursor.epoch, cursor.seq));
        if event.epoch < epoch {
            let found = event.epoch;
            return Err(Misfit(format!(
                "an event of epoch {found} after one of epoch {epoch}"
            )));
        }
        if event.epoch == epoch && event.seq <= last {
            return Ok(false);
        }
        if event.seq != last + 1 {
            return Err(Misfit(format!("event {} after event {last}", event.seq)));
        }
        if self.terminal.is_some() {
            return Err(Misfit("an event after the Terminal".to_owned()));
        }
        Ok(true)
    }

    fn rewind(&mut self, rewind: &v1::Rewind) -> Result<(), Misfit> {
        let mut kept = BTreeMap::new();
        for keep in &rewind.keep {
            let length = usize::try_from(keep.length_bytes).unwrap_or(usize::MAX);
            let held = self
                .blocks
                .get(&keep.block_id)
                .filter(|held| held.content.is_char_boundary(length));
            let Some(held) = held else {
                let id = keep.block_id;
                return Err(Misfit(format!("block {id} is to be kept and is not held")));
            };
            let mut block = held.clone();
            if length < block.content.len() {
                block.content.truncate(length);
                block.is_stopped = false;
                block.is_committed = false;
            }
            kept.insert(keep.block_id, block);
        }
        if rewind.hash != hash_of(&kept) {
            return Err(Misfit("the hash of what a rewind keeps differs".to_owned()));
        }
        self.blocks = kept;
        Ok(())
    }
}

fn restored(snapshot: &v1::Snapshot) -> Result<BTreeMap<u32, Block>, Misfit> {
    let mut blocks = BTreeMap::new();
    for held in &snapshot.blocks {
        let start = held.start.clone().unwrap_or_default();
        begin(&mut blocks, &start)?;
        if let Some(block) = blocks.get_mut(&start.block_id) {
            block.content.clone_from(&held.text);
        }
        if let Some(stopped) = &held.stop {
            stop(&mut blocks, stopped)?;
        }
    }
    if snapshot.hash != hash_of(&blocks) {
        return Err(Misfit("the hash of a snapshot differs".to_owned()));
    }
    Ok(blocks)
}

fn begin(blocks: &mut BTreeMap<u32, Block>, start: &v1::BlockStart) -> Result<(), Misfit> {
    if blocks.contains_key(&start.block_id) {
        return Err(Misfit(format!("block {} begins twice", start.block_id)));
    }
    let block = Block {
        kind: start.kind,
        call_id: start.call_id.clone(),
        tool_name: start.tool_name.clone(),
        ..Block::default()
    };
    blocks.insert(start.block_id, block);
    Ok(())
}

fn append(blocks: &mut BTreeMap<u32, Block>, delta: &v1::BlockDelta) -> Result<(), Misfit> {
    let block = open(blocks, delta.block_id)?;
    let held = block.content.len();
    if u64::try_from(held) != Ok(delta.start_offset_bytes) {
        let at = delta.start_offset_bytes;
        return Err(Misfit(format!(
            "a delta at {at}, but {held} bytes are held"
        )));
    }
    block.content.push_str(&delta.text);
    Ok(())
}

fn stop(blocks: &mut BTreeMap<u32, Block>, stop: &v1::BlockStop) -> Result<(), Misfit> {
    let block = open(blocks, stop.block_id)?;
    if u64::try_from(block.content.len()) != Ok(stop.length_bytes)
        || stop.hash != Sha256::digest(&block.content).to_vec()
    {
        return Err(Misfit(format!(
            "block {} is not what was sent",
            stop.block_id
        )));
    }
    if stop.committed && stop.arguments_json.as_ref() != Some(&block.content) {
        let id = stop.block_id;
        return Err(Misfit(format!(
            "the arguments of block {id} are not what was sent"
        )));
    }
    block.is_stopped = true;
    block.is_committed = stop.committed;
    Ok(())
}

fn open(blocks: &mut BTreeMap<u32, Block>, id: u32) -> Result<&mut Block, Misfit> {
    blocks
        .get_mut(&id)
        .filter(|block| !block.is_stopped)
        .ok_or_else(|| Misfit(format!("block {id} is not open")))
}

fn hash_of(blocks: &BTreeMap<u32, Block>) -> Vec<u8> {
    let mut whole = Sha256::new();
    for (id, block) in blocks {
        let length = u64::try_from(block.content.len()).unwrap_or(u64::MAX);
        whole.update(id.to_be_bytes());
        whole.update(block.kind.to_be_bytes());
        whole.update(length.to_be_bytes());
        whole.update(Sha256::digest(&block.content));
    }
    whole.finalize().to_vec()
}
