package relight

import (
	"encoding/json"

	v1 "relight.dev/api/relight/v1"
)

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
	// Around is what the provider says around its answer and no other field has (service_tier, system_fingerprint, ...):
	// a JSON object; nil if it says nothing.
	Around json.RawMessage
}

// Failed is how an invocation ended with a failure, or was cancelled.
type Failed struct {
	Failure      *v1.Failure
	HistoryPatch []*v1.Message
	InvocationID string
}

// A ToolOutcome is how a call of a tool ended: *ToolResult or *Failed.
type ToolOutcome interface {
	// ApplyTo returns the history with the result or the error, for the model that called. Call it once.
	ApplyTo(history []*v1.Message) []*v1.Message

	isToolOutcome()
}

// A ToolResult is what a tool returned.
type ToolResult struct {
	// Text is all its texts, joined by line feeds.
	Text string
	// Output is the result word for word, and what was done to get it.
	Output       *v1.ToolOutput
	HistoryPatch []*v1.Message
	InvocationID string
	// Target is the id of the target that returned it, `server/tool`.
	Target   string
	Attempts []*v1.Attempt
}

func (*Answer) isOutcome()         {}
func (*Failed) isOutcome()         {}
func (*ToolResult) isToolOutcome() {}
func (*Failed) isToolOutcome()     {}

// Structured decodes the result as data into value; it returns false if the tool gave none.
func (r *ToolResult) Structured(value any) (bool, error) {
	if r.Output == nil || r.Output.StructuredJson == nil {
		return false, nil
	}
	return true, json.Unmarshal([]byte(r.Output.GetStructuredJson()), value)
}

// ApplyTo returns the history with the result, after its call if the caller named none. Call it once.
func (r *ToolResult) ApplyTo(history []*v1.Message) []*v1.Message {
	return append(history[:len(history):len(history)], r.HistoryPatch...)
}

// ApplyTo returns the history with the error of a tool, so that its model reads it. Call it once. Nothing is added for a
// call of a model.
func (f *Failed) ApplyTo(history []*v1.Message) []*v1.Message {
	return append(history[:len(history):len(history)], f.HistoryPatch...)
}

// ApplyTo returns the history with what the model saw and said. Call it once.
func (a *Answer) ApplyTo(history []*v1.Message) []*v1.Message {
	return append(history[:len(history)-int(a.HistoryReplaceTail):len(history)-int(a.HistoryReplaceTail)], a.HistoryPatch...)
}

func toolOutcome(response *v1.InvokeWithRecoveryResponse) ToolOutcome {
	if response.GetFailure() != nil {
		return failed(response)
	}
	return &ToolResult{
		Text:         response.GetCompletion().GetText(),
		Output:       response.GetCompletion().GetToolOutput(),
		HistoryPatch: response.GetHistoryPatch(),
		InvocationID: response.GetInvocationId(),
		Target:       response.GetFinalTarget(),
		Attempts:     response.GetAttempts(),
	}
}

func failed(response *v1.InvokeWithRecoveryResponse) *Failed {
	return &Failed{
		Failure:      response.GetFailure(),
		HistoryPatch: response.GetHistoryPatch(),
		InvocationID: response.GetInvocationId(),
	}
}

func fromResponse(response *v1.InvokeWithRecoveryResponse) Outcome {
	if response.GetFailure() != nil {
		return failed(response)
	}
	answer := &Answer{
		Text:               response.GetCompletion().GetText(),
		HistoryPatch:       response.GetHistoryPatch(),
		HistoryReplaceTail: response.GetHistoryReplaceTail(),
		InvocationID:       response.GetInvocationId(),
		Target:             response.GetFinalTarget(),
		Attempts:           response.GetAttempts(),
		Usage:              response.GetUsage(),
		Around:             response.GetCompletion().GetAround().GetData(),
	}
	for _, part := range response.GetCompletion().GetMessage().GetParts() {
		if call := part.GetToolCall(); call != nil {
			answer.ToolCalls = append(answer.ToolCalls, call)
		}
	}
	return answer
}
