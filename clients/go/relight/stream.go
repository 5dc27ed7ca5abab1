package relight

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	v1 "relight.dev/api/relight/v1"

	"google.golang.org/protobuf/proto"
)

// maxMisfits is how often events that do not fit are read again from the beginning.
const maxMisfits = 3

// A Change is a change of the text that is shown: more of it, or all of it that remains after its end was taken back.
type Change struct {
	// Text is what is added.
	Text string
	// Rewound says that Kept, and nothing else, remains of what was shown.
	Rewound bool
	Kept    string
}

// A ResumePoint is where another process can go on with an invocation.
type ResumePoint struct {
	Token, RequestID string
}

// A Stream is an answer that comes in pieces. Read it once, by Text or by Changes.
type Stream struct {
	client        *Client
	ctx           context.Context
	request       *v1.StreamWithRecoveryRequest
	returnFailure bool

	fold     *fold
	token    string
	isAtomic bool
	detached bool
	shown    []byte
	lastText uint32
	misfits  int
	// catchingUp says that events are read again that were shown already.
	catchingUp bool
}

// Stream begins with the first read. It survives its connection and the replica that serves it; leaving its loop, or
// cancelling the context, cancels the invocation.
func (c *Client) Stream(ctx context.Context, call Call) *Stream {
	invocation := call.invocation()
	overrides := &v1.Overrides{}
	proto.Merge(overrides, call.Overrides)
	invocation.Overrides = overrides
	invocation.AnswerView = v1.AnswerView_ANSWER_VIEW_REPEATED
	if !call.NotResumable && overrides.Resumable == nil {
		overrides.Resumable = &v1.Resumable{}
	}
	request := &v1.StreamWithRecoveryRequest{Start: &v1.StreamWithRecoveryRequest_Invocation{Invocation: invocation}}
	return &Stream{client: c, ctx: ctx, request: request, returnFailure: call.ReturnFailure, fold: newFold()}
}

// Resume streams the whole answer of an earlier stream that was detached, here or in another process.
func (c *Client) Resume(ctx context.Context, point ResumePoint) *Stream {
	resume := &v1.Resume{
		Invocation: &v1.Resume_Token{Token: point.Token},
		AnswerView: v1.AnswerView_ANSWER_VIEW_REPEATED,
	}
	if point.RequestID != "" {
		resume.Invocation = &v1.Resume_RequestId{RequestId: point.RequestID}
	}
	request := &v1.StreamWithRecoveryRequest{Start: &v1.StreamWithRecoveryRequest_Resume{Resume: resume}}
	return &Stream{client: c, ctx: ctx, request: request, fold: newFold()}
}

// Text iterates over text that is final. The last error is a *FailureError where the invocation failed for good.
func (s *Stream) Text() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		s.mode(v1.RewindMode_REWIND_MODE_ATOMIC, true)
		err := s.follow(func(change Change) error {
			switch {
			case !s.isAtomic:
				return nil
			case change.Rewound:
				return fmt.Errorf("%w: final text was taken back", ErrProtocol)
			case !yield(change.Text, nil):
				return errLeft
			}
			return nil
		})
		if err == nil && !s.isAtomic && s.fold.text() != "" && !yield(s.fold.text(), nil) {
			return
		}
		if err = s.ended(err); err != nil {
			yield("", err)
		}
	}
}

// Changes iterates over text as it comes, and over what is taken back.
func (s *Stream) Changes() iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		s.mode(v1.RewindMode_REWIND_MODE_REWIND, false)
		err := s.follow(func(change Change) error {
			if !yield(change, nil) {
				return errLeft
			}
			return nil
		})
		if err = s.ended(err); err != nil {
			yield(Change{}, err)
		}
	}
}

// Outcome returns how the invocation ended, once the stream was read to its end.
func (s *Stream) Outcome() (Outcome, error) {
	terminal, id := s.fold.terminal, s.fold.invocationID
	if terminal == nil {
		return nil, ErrUnfinished
	}
	if failure := terminal.GetFailed(); failure != nil {
		return &Failed{Failure: failure, HistoryPatch: terminal.GetHistoryPatch(), InvocationID: id}, nil
	}
	if cancelled := terminal.GetCancelled(); cancelled != nil {
		return &Failed{Failure: cancelled.GetFailure(), HistoryPatch: terminal.GetHistoryPatch(), InvocationID: id}, nil
	}
	answer := &Answer{
		Text:               s.fold.text(),
		HistoryPatch:       terminal.GetCompleted().GetHistoryPatch(),
		HistoryReplaceTail: terminal.GetCompleted().GetHistoryReplaceTail(),
		InvocationID:       id,
		Target:             terminal.GetFinalTarget(),
		Attempts:           terminal.GetAttempts(),
		Usage:              terminal.GetUsage(),
		Around:             terminal.GetCompleted().GetAround().GetData(),
	}
	for _, call := range s.fold.ofKind(v1.BlockKind_BLOCK_KIND_TOOL_CALL) {
		if call.committed {
			part := &v1.ToolCallPart{Id: call.callID, Name: call.toolName, ArgumentsJson: string(call.content)}
			answer.ToolCalls = append(answer.ToolCalls, part)
		}
	}
	return answer, nil
}

// Detach lets the invocation run for its grace when the loop is left next, to be resumed.
func (s *Stream) Detach() (ResumePoint, error) {
	if s.token == "" {
		return ResumePoint{}, errors.New("relight: nothing was accepted yet, or nothing is kept, so that nothing can be resumed")
	}
	s.detached = true
	// A token of a resumed stream stands for the place where that began, and not for the whole answer.
	token := s.token
	if asked := s.request.GetResume().GetToken(); asked != "" {
		token = asked
	}
	return ResumePoint{Token: token, RequestID: s.requestID()}, nil
}

// errLeft says that the loop was left.
var errLeft = errors.New("the loop was left")

// mode asks for this delivery; a stricter one that the caller chose for a live stream stays.
func (s *Stream) mode(mode v1.RewindMode, always bool) {
	overrides := s.request.GetInvocation().GetOverrides()
	if overrides != nil && (always || overrides.GetRewindMode() == v1.RewindMode_REWIND_MODE_UNSPECIFIED) {
		overrides.RewindMode = mode
	}
}

// ended returns the last error of the loop; nil where there is none, or nobody to take it.
func (s *Stream) ended(err error) error {
	if errors.Is(err, errLeft) {
		return nil
	}
	if err != nil || s.returnFailure {
		return err
	}
	outcome, err := s.Outcome()
	if failed, ok := outcome.(*Failed); ok {
		return &FailureError{Failure: failed.Failure, failed: failed}
	}
	return err
}

func (s *Stream) requestID() string {
	if invocation := s.request.GetInvocation(); invocation != nil {
		return invocation.GetRequestId()
	}
	return s.request.GetResume().GetRequestId()
}

// follow reads the invocation over as many connections as it takes.
func (s *Stream) follow(show func(Change) error) error {
	retry := retry{reconnect: s.client.reconnect}
	for s.fold.terminal == nil {
		err := s.connect(&retry, show)
		var unfit misfit
		if errors.As(err, &unfit) {
			if s.misfits++; s.misfits > maxMisfits {
				err = fmt.Errorf("%w: %w", ErrProtocol, unfit)
			} else {
				s.fold, s.catchingUp = newFold(), true
				err = lost(unfit.Error())
			}
		}
		if err != nil {
			err = retry.wait(s.ctx, err)
		}
		if err != nil {
			// Nobody waits for an answer then. After any other error it may be resumed by its request id.
			left := errors.Is(err, errLeft) || errors.Is(err, ErrProtocol) || errors.Is(s.ctx.Err(), context.Canceled)
			if left && !s.detached && s.fold.terminal == nil {
				s.client.cancel(s.ctx, s.fold.invocationID, s.requestID())
			}
			return err
		}
	}
	return nil
}

// connect reads one connection to its end.
func (s *Stream) connect(retry *retry, show func(Change) error) error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	stream, err := s.client.Stub.StreamWithRecovery(ctx, s.nextRequest())
	if err != nil {
		return fromRPC(err, nil)
	}
	for s.fold.terminal == nil {
		response, err := stream.Recv()
		if err != nil {
			return fromRPC(err, stream.Trailer())
		}
		event := response.GetEvent()
		if accepted := event.GetAccepted(); accepted != nil {
			if accepted.GetResumeToken() != "" {
				s.token = accepted.GetResumeToken()
			}
			s.isAtomic = accepted.GetRewindMode() == v1.RewindMode_REWIND_MODE_ATOMIC
		}
		isNew, err := s.fold.apply(event)
		if err != nil {
			return err
		}
		if !isNew {
			continue
		}
		retry.progressed()
		if err := s.difference(event, show); err != nil {
			return err
		}
	}
	return nil
}

// nextRequest is the first request again, which its request id makes idempotent, or what is missing after the cursor.
func (s *Stream) nextRequest() *v1.StreamWithRecoveryRequest {
	if s.token == "" || s.fold.cursor == nil {
		return s.request
	}
	resume := &v1.Resume{
		Invocation: &v1.Resume_Token{Token: s.token},
		Cursor:     s.fold.cursor,
		AnswerView: v1.AnswerView_ANSWER_VIEW_REPEATED,
	}
	return &v1.StreamWithRecoveryRequest{Start: &v1.StreamWithRecoveryRequest_Resume{Resume: resume}}
}

// difference shows what the event changed of the text. A delta at the end is passed on as it is; all else is compared.
func (s *Stream) difference(event *v1.StreamEvent, show func(Change) error) error {
	isEnd := false
	switch body := event.GetBody().(type) {
	case *v1.StreamEvent_BlockDelta:
		if body.BlockDelta.GetBlockId() == s.lastText && !s.catchingUp {
			return s.add(body.BlockDelta.GetText(), show)
		}
	case *v1.StreamEvent_Terminal:
		isEnd = true
	case *v1.StreamEvent_BlockStart, *v1.StreamEvent_Rewind, *v1.StreamEvent_Snapshot:
	default:
		return nil
	}
	s.lastText = 0
	for _, id := range s.fold.ids() {
		if s.fold.blocks[id].kind == v1.BlockKind_BLOCK_KIND_TEXT {
			s.lastText = id
		}
	}
	now, shown := s.fold.text(), string(s.shown)
	if s.catchingUp && strings.HasPrefix(shown, now) && !isEnd {
		return nil
	}
	s.catchingUp = false
	if !strings.HasPrefix(now, shown) {
		shown = commonPrefix(shown, now)
		s.shown = slices.Clone([]byte(shown))
		if err := show(Change{Rewound: true, Kept: shown}); err != nil {
			return err
		}
	}
	if len(now) > len(shown) {
		return s.add(now[len(shown):], show)
	}
	return nil
}

func (s *Stream) add(text string, show func(Change) error) error {
	s.shown = append(s.shown, text...)
	return show(Change{Text: text})
}

// commonPrefix is the longest common beginning, which never ends inside a code point.
func commonPrefix(one, other string) string {
	length := 0
	for length < min(len(one), len(other)) && one[length] == other[length] {
		length++
	}
	for length > 0 && length < len(one) && !utf8.RuneStart(one[length]) {
		length--
	}
	return one[:length]
}
