package relight

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "relight.dev/api/relight/v1"
)

// A misfit is an event that does not fit what is held; the invocation has to be read again from its beginning.
type misfit string

func (m misfit) Error() string { return string(m) }

func misfitf(format string, arguments ...any) misfit {
	return misfit(fmt.Sprintf(format, arguments...))
}

// A block is a piece of the answer.
type block struct {
	kind             v1.BlockKind
	callID, toolName string
	content          []byte
	stopped          bool
	// committed says whether a tool call may be acted on.
	committed bool
}

// A fold is what the caller holds of one invocation; it outlives connections. The rules are those at the head of
// stream.proto. What does not fit is a misfit and is never shown.
type fold struct {
	blocks       map[uint32]*block
	invocationID string
	// cursor is the last event; nil before the first.
	cursor   *v1.StreamCursor
	terminal *v1.Terminal
}

func newFold() *fold { return &fold{blocks: map[uint32]*block{}} }

// apply folds one event. It is true when the event was new and numbered, or a snapshot.
func (f *fold) apply(event *v1.StreamEvent) (bool, error) {
	if f.invocationID != "" && event.GetInvocationId() != f.invocationID {
		return false, misfit("an event of another invocation")
	}
	f.invocationID = event.GetInvocationId()
	switch body := event.GetBody().(type) {
	case *v1.StreamEvent_Accepted, *v1.StreamEvent_Heartbeat:
		return false, nil
	case *v1.StreamEvent_Snapshot:
		if err := f.restore(body.Snapshot); err != nil {
			return false, err
		}
		f.cursor, f.terminal = nil, nil
		if event.GetSeq() > 0 {
			f.cursor = &v1.StreamCursor{Epoch: event.GetEpoch(), Seq: event.GetSeq()}
		}
		return true, nil
	}
	if isNext, err := f.isNext(event); !isNext || err != nil {
		return false, err
	}
	if err := f.change(event); err != nil {
		return false, err
	}
	f.cursor = &v1.StreamCursor{Epoch: event.GetEpoch(), Seq: event.GetSeq()}
	return true, nil
}

func (f *fold) change(event *v1.StreamEvent) error {
	switch body := event.GetBody().(type) {
	case *v1.StreamEvent_BlockStart:
		return f.start(body.BlockStart)
	case *v1.StreamEvent_BlockDelta:
		return f.append(body.BlockDelta)
	case *v1.StreamEvent_BlockStop:
		return f.stop(body.BlockStop)
	case *v1.StreamEvent_Rewind:
		return f.rewind(body.Rewind)
	case *v1.StreamEvent_Terminal:
		if !bytes.Equal(body.Terminal.GetResultHash(), f.hash()) {
			return misfit("the hash of the result differs")
		}
		f.terminal = body.Terminal
	}
	// Any other body tells of the way to the answer, and changes nothing that is held.
	return nil
}

func (f *fold) ids() []uint32 { return slices.Sorted(maps.Keys(f.blocks)) }

func (f *fold) ofKind(kind v1.BlockKind) []*block {
	var found []*block
	for _, id := range f.ids() {
		if f.blocks[id].kind == kind {
			found = append(found, f.blocks[id])
		}
	}
	return found
}

// text is all text of the answer, as Completion.text has it.
func (f *fold) text() string {
	var texts []string
	for _, block := range f.ofKind(v1.BlockKind_BLOCK_KIND_TEXT) {
		texts = append(texts, string(block.content))
	}
	return strings.Join(texts, "\n")
}

func (f *fold) hash() []byte {
	whole := sha256.New()
	for _, id := range f.ids() {
		block := f.blocks[id]
		head := binary.BigEndian.AppendUint32(nil, id)
		head = binary.BigEndian.AppendUint32(head, uint32(block.kind))
		head = binary.BigEndian.AppendUint64(head, uint64(len(block.content)))
		content := sha256.Sum256(block.content)
		whole.Write(append(head, content[:]...))
	}
	return whole.Sum(nil)
}

func (f *fold) isNext(event *v1.StreamEvent) (bool, error) {
	epoch, last := event.GetEpoch(), uint64(0)
	if f.cursor != nil {
		epoch, last = f.cursor.GetEpoch(), f.cursor.GetSeq()
	}
	switch {
	case event.GetEpoch() < epoch:
		return false, misfitf("an event of epoch %d after one of epoch %d", event.GetEpoch(), epoch)
	case event.GetEpoch() == epoch && event.GetSeq() <= last:
		return false, nil
	case event.GetSeq() != last+1:
		return false, misfitf("event %d after event %d", event.GetSeq(), last)
	case f.terminal != nil:
		return false, misfit("an event after the Terminal")
	}
	return true, nil
}

func (f *fold) open(id uint32) (*block, error) {
	block := f.blocks[id]
	if block == nil || block.stopped {
		return nil, misfitf("block %d is not open", id)
	}
	return block, nil
}

func (f *fold) start(start *v1.BlockStart) error {
	if f.blocks[start.GetBlockId()] != nil {
		return misfitf("block %d begins twice", start.GetBlockId())
	}
	f.blocks[start.GetBlockId()] = &block{kind: start.GetKind(), callID: start.GetCallId(), toolName: start.GetToolName()}
	return nil
}

func (f *fold) append(delta *v1.BlockDelta) error {
	block, err := f.open(delta.GetBlockId())
	if err != nil {
		return err
	}
	if uint64(len(block.content)) != delta.GetStartOffsetBytes() {
		return misfitf("a delta at %d where %d bytes are held", delta.GetStartOffsetBytes(), len(block.content))
	}
	block.content = append(block.content, delta.GetText()...)
	return nil
}

func (f *fold) stop(stop *v1.BlockStop) error {
	block, err := f.open(stop.GetBlockId())
	if err != nil {
		return err
	}
	hash := sha256.Sum256(block.content)
	if uint64(len(block.content)) != stop.GetLengthBytes() || !bytes.Equal(hash[:], stop.GetHash()) {
		return misfitf("block %d is not what was sent", stop.GetBlockId())
	}
	if stop.GetCommitted() && (stop.ArgumentsJson == nil || stop.GetArgumentsJson() != string(block.content)) {
		return misfitf("the arguments of block %d are not what was sent", stop.GetBlockId())
	}
	block.stopped, block.committed = true, stop.GetCommitted()
	return nil
}

func (f *fold) rewind(rewind *v1.Rewind) error {
	kept := map[uint32]*block{}
	for _, keep := range rewind.GetKeep() {
		held, length := f.blocks[keep.GetBlockId()], keep.GetLengthBytes()
		if held == nil || uint64(len(held.content)) < length {
			return misfitf("block %d is to be kept and is not held", keep.GetBlockId())
		}
		kept[keep.GetBlockId()] = held
		if length < uint64(len(held.content)) {
			cut := *held
			cut.content, cut.stopped, cut.committed = slices.Clone(held.content[:length]), false, false
			kept[keep.GetBlockId()] = &cut
		}
	}
	after := fold{blocks: kept}
	if !bytes.Equal(after.hash(), rewind.GetHash()) {
		return misfit("the hash of what a rewind keeps differs")
	}
	f.blocks = kept
	return nil
}

func (f *fold) restore(snapshot *v1.Snapshot) error {
	fresh := newFold()
	for _, held := range snapshot.GetBlocks() {
		if err := fresh.start(held.GetStart()); err != nil {
			return err
		}
		fresh.blocks[held.GetStart().GetBlockId()].content = []byte(held.GetText())
		if held.GetStop() != nil {
			if err := fresh.stop(held.GetStop()); err != nil {
				return err
			}
		}
	}
	if !bytes.Equal(fresh.hash(), snapshot.GetHash()) {
		return misfit("the hash of a snapshot differs")
	}
	f.blocks = fresh.blocks
	return nil
}
