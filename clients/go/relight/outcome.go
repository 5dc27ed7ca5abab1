package relight

import v1 "relight.dev/api/relight/v1"

// An Outcome is how an invocation ended: *Answer or *Failed.
type Outcome interface{ isOutcome() }

// An Answer is how an invocation ended well.
type Answer struct {
	Text string
	// ToolCalls are the tools that the model wants called; each may be acted on.
	ToolCalls          []*v1.ToolCallPart
	HistoryPatch       []*v1.Message
	HistoryReplaceTail uint32
	InvocationID       string
	// Target is the id of the target that answered.
	Target   string
	Attempts []*v1.Attempt
	// Usage counts the tokens of all attempts: what was spent.
	Usage *v1.Usage
}

// Failed is how an invocation ended with a failure, or was cancelled.
type Failed struct {
	Failure      *v1.Failure
	InvocationID string
}

func (*Answer) isOutcome() {}
func (*Failed) isOutcome() {}

// ApplyTo returns the history with what the model saw and said. Call it once.
func (a *Answer) ApplyTo(history []*v1.Message) []*v1.Message {
	return append(history[:len(history)-int(a.HistoryReplaceTail):len(history)-int(a.HistoryReplaceTail)], a.HistoryPatch...)
}

func fromResponse(response *v1.InvokeWithRecoveryResponse) Outcome {
	if failure := response.GetFailure(); failure != nil {
		return &Failed{Failure: failure, InvocationID: response.GetInvocationId()}
	}
	answer := &Answer{
		Text:               response.GetCompletion().GetText(),
		HistoryPatch:       response.GetHistoryPatch(),
		HistoryReplaceTail: response.GetHistoryReplaceTail(),
		InvocationID:       response.GetInvocationId(),
		Target:             response.GetFinalTarget(),
		Attempts:           response.GetAttempts(),
		Usage:              response.GetUsage(),
	}
	for _, part := range response.GetCompletion().GetMessage().GetParts() {
		if call := part.GetToolCall(); call != nil {
			answer.ToolCalls = append(answer.ToolCalls, call)
		}
	}
	return answer
}
