// Command driver runs the calls of the specification with this package: one call as JSON on each line in, what its caller
// held out.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"relight.dev/api/relight"
	v1 "relight.dev/api/relight/v1"
)

type job struct {
	Target string
	Call   struct {
		Method, Prompt, Route, After string
		RequestID                    string `json:"request_id"`
		APIKey                       string `json:"api_key"`
		TLS                          string
		Live                         bool
		ReturnFailure                bool `json:"return_failure"`
		FromStart                    bool `json:"from_start"`
		Take, Detach, Attempts       int
		CancelAfter                  int `json:"cancel_after"`
		TimeoutMS                    int `json:"timeout_ms"`
		Distinct, Most               int
		Tool                         struct {
			Name      string
			Arguments map[string]any
			CallID    string `json:"call_id"`
			Goal      string
			Meta      map[string]any
		}
	}
}

type held map[string]any

// left says that the call was left early.
var left = errors.New("left")

func (h held) outcome(outcome relight.Outcome, prompt string) {
	switch outcome := outcome.(type) {
	case *relight.Answer:
		h.answer(outcome, prompt)
	case *relight.Failed:
		h.failure(outcome.Failure, false)
	}
}

// shown returns the role of each message, and what of it can be read.
func shown(messages []*v1.Message) [][2]string {
	history := [][2]string{}
	for _, message := range messages {
		text := ""
		for _, part := range message.GetParts() {
			text += part.GetText().GetText() + part.GetToolCall().GetName()
			for _, piece := range part.GetToolResult().GetContent() {
				text += piece.GetText().GetText()
			}
		}
		history = append(history, [2]string{message.GetRole().String(), text})
	}
	return history
}

func (h held) answer(answer *relight.Answer, prompt string) {
	calls := [][3]string{}
	history := shown(answer.ApplyTo([]*v1.Message{relight.User(prompt)}))
	for _, call := range answer.ToolCalls {
		calls = append(calls, [3]string{call.GetId(), call.GetName(), call.GetArgumentsJson()})
	}
	h["ended"], h["text"], h["target"] = "answer", answer.Text, answer.Target
	h["history"], h["tool_calls"] = history, calls
	h["around"] = map[string]any{}
	if answer.Around != nil {
		h["around"] = answer.Around
	}
}

func (h held) failure(failure *v1.Failure, thrown bool) {
	h["ended"], h["thrown"] = "failure", thrown
	h["failure"] = [2]string{failure.GetFailureClass().String(), failure.GetUserMessage()}
}

func (h held) error(err error) {
	var failure *relight.FailureError
	var status *relight.StatusError
	switch {
	case errors.As(err, &failure):
		h.failure(failure.Failure, true)
	case errors.Is(err, left):
		h["ended"] = "left"
	case errors.Is(err, context.Canceled):
		h["ended"] = "cancelled"
	case errors.Is(err, context.DeadlineExceeded):
		h["ended"], h["status"] = "status", [2]string{"DEADLINE_EXCEEDED", ""}
	case errors.As(err, &status):
		h["ended"], h["status"] = "status", [2]string{name(status.Code), status.Reason}
	case errors.Is(err, relight.ErrProtocol):
		h["ended"] = "protocol"
	default:
		log.Fatal(err)
	}
}

// name is the name of a status as the contract writes it.
func name(code codes.Code) string {
	var words strings.Builder
	for at, letter := range code.String() {
		if at > 0 && letter >= 'A' && letter <= 'Z' {
			words.WriteByte('_')
		}
		words.WriteRune(letter)
	}
	return strings.ToUpper(words.String())
}

// read shows one stream, and returns how reading it ended.
func (h held) read(stream *relight.Stream, job job, limit int, cancel context.CancelFunc) error {
	items := h["items"].([][2]string)
	defer func() { h["items"] = items }()
	if !job.Call.Live {
		for text, err := range stream.Text() {
			if err != nil {
				return err
			}
			items = append(items, [2]string{"text", text})
			if len(items) == limit {
				return left
			}
			if len(items) == job.Call.CancelAfter {
				time.AfterFunc(0, cancel)
			}
		}
		return nil
	}
	for change, err := range stream.Changes() {
		switch {
		case err != nil:
			return err
		case change.Rewound:
			items = append(items, [2]string{"rewind", change.Kept})
		default:
			items = append(items, [2]string{"text", change.Text})
		}
		if len(items) != limit {
			continue
		}
		if job.Call.Detach > 0 {
			point, err := stream.Detach()
			if err != nil {
				return err
			}
			h["point"] = point
		}
		return left
	}
	return nil
}

func (h held) stream(ctx context.Context, client *relight.Client, job job, call relight.Call) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	h["items"] = [][2]string{}
	stream := client.Stream(ctx, call)
	err := h.read(stream, job, job.Call.Take+job.Call.Detach, cancel)
	if point, ok := h["point"].(relight.ResumePoint); ok && errors.Is(err, left) {
		delete(h, "point")
		stream = client.Resume(ctx, point)
		err = h.read(stream, job, 0, cancel)
	}
	if err != nil {
		return err
	}
	outcome, err := stream.Outcome()
	h.outcome(outcome, job.Call.Prompt)
	return err
}

func (h held) watch(ctx context.Context, client *relight.Client, job job) error {
	events := [][2]string{}
	defer func() { h["events"] = events }()
	options := relight.WatchOptions{After: job.Call.After, FromStart: job.Call.FromStart}
	for event, err := range client.Watch(ctx, options) {
		if err != nil {
			return err
		}
		text := event.GetDisplayText()
		if missed := event.GetMissed(); missed != nil {
			text = fmt.Sprintf("missed %d", missed.GetCount())
		}
		events = append(events, [2]string{event.GetCursor(), text})
		h["cursor"] = event.GetCursor()
		if len(events) == job.Call.Take {
			break
		}
	}
	return left
}

// tool calls a tool.
func (h held) tool(ctx context.Context, client *relight.Client, job job, call relight.Call) error {
	wanted := job.Call.Tool
	tool := relight.Tool{Name: wanted.Name, Arguments: wanted.Arguments}
	if wanted.CallID != "" {
		arguments, err := json.Marshal(wanted.Arguments)
		if err != nil {
			return err
		}
		tool = relight.ToolOf(&v1.ToolCallPart{Id: wanted.CallID, Name: wanted.Name, ArgumentsJson: string(arguments)})
	}
	tool.Goal, tool.Meta, tool.Call = wanted.Goal, wanted.Meta, call
	var result *relight.ToolResult
	if job.Call.ReturnFailure {
		outcome, err := client.TryCallTool(ctx, tool)
		if err != nil {
			return err
		}
		if failed, ok := outcome.(*relight.Failed); ok {
			h.failure(failed.Failure, false)
			h["history"] = shown(failed.ApplyTo(nil))
			return nil
		}
		result = outcome.(*relight.ToolResult)
	} else {
		var err error
		var failure *relight.FailureError
		if result, err = client.CallTool(ctx, tool); errors.As(err, &failure) {
			h.failure(failure.Failure, true)
			h["history"] = shown(failure.ApplyTo(nil))
			return nil
		} else if err != nil {
			return err
		}
	}
	var structured any
	if _, err := result.Structured(&structured); err != nil {
		return err
	}
	h["ended"], h["text"], h["target"], h["structured"] = "result", result.Text, result.Target, structured
	h["history"] = shown(result.ApplyTo(nil))
	return nil
}

// distinct calls until so many different answers came.
func (h held) distinct(ctx context.Context, client *relight.Client, job job) error {
	texts := map[string]bool{}
	for count := 0; count < job.Call.Most && len(texts) < job.Call.Distinct; count++ {
		answer, err := client.Invoke(ctx, relight.Prompt(job.Call.Prompt))
		if err != nil {
			return err
		}
		texts[answer.Text] = true
	}
	h["texts"] = slices.Collect(maps.Keys(texts))
	return nil
}

func (h held) run(job job) error {
	reconnect := relight.Reconnect{Attempts: 12, Wait: 50 * time.Millisecond, MaxWait: 2 * time.Second}
	if job.Call.Attempts > 0 {
		reconnect.Attempts = job.Call.Attempts
	}
	options := []relight.Option{relight.WithAPIKey(job.Call.APIKey), relight.WithReconnect(reconnect)}
	if job.Call.TLS != "" {
		authorities := x509.NewCertPool()
		authorities.AppendCertsFromPEM([]byte(job.Call.TLS))
		options = append(options, relight.WithTLS(&tls.Config{RootCAs: authorities}))
	}
	client, err := relight.New(job.Target, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx := context.Background()
	if job.Call.TimeoutMS > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(job.Call.TimeoutMS)*time.Millisecond)
		defer cancel()
	}
	call := relight.Prompt(job.Call.Prompt)
	call.Route, call.RequestID, call.ReturnFailure = job.Call.Route, job.Call.RequestID, job.Call.ReturnFailure
	switch {
	case job.Call.Method == "stream":
		return h.stream(ctx, client, job, call)
	case job.Call.Method == "watch":
		return h.watch(ctx, client, job)
	case job.Call.Method == "call_tool":
		return h.tool(ctx, client, job, call)
	case job.Call.Method == "distinct":
		return h.distinct(ctx, client, job)
	case job.Call.ReturnFailure:
		outcome, err := client.TryInvoke(ctx, call)
		h.outcome(outcome, job.Call.Prompt)
		return err
	}
	answer, err := client.Invoke(ctx, call)
	if err == nil {
		h.answer(answer, job.Call.Prompt)
	}
	return err
}

func main() {
	lines, results := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var job job
		if err := json.Unmarshal(lines.Bytes(), &job); err != nil {
			log.Fatal(err)
		}
		result := held{}
		if err := result.run(job); err != nil {
			result.error(err)
		}
		if err := results.Encode(result); err != nil {
			log.Fatal(err)
		}
	}
}
