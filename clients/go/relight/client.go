package relight

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	v1 "relight.dev/api/relight/v1"
)

const cancelTimeout = 5 * time.Second

// A Client calls Relight. Goroutines may share one; close it at the end.
type Client struct {
	// Stub is the generated client, for every other RPC.
	Stub v1.RecoveryServiceClient

	conn       *grpc.ClientConn
	reconnect  Reconnect
	cancelling sync.WaitGroup
}

// An Option changes a Client.
type Option func(*settings)

type settings struct {
	credentials credentials.TransportCredentials
	apiKey      string
	reconnect   Reconnect
}

// WithAPIKey sends this key with every call.
func WithAPIKey(key string) Option { return func(s *settings) { s.apiKey = key } }

// WithTLS encrypts the connection.
func WithTLS(config *tls.Config) Option {
	return func(s *settings) { s.credentials = credentials.NewTLS(config) }
}

// WithReconnect replaces DefaultReconnect.
func WithReconnect(reconnect Reconnect) Option {
	return func(s *settings) { s.reconnect = reconnect }
}

// New returns a client of a gRPC target: `host:port`, or `dns:///relight-headless:50051` for all replicas behind a name.
// It spreads calls over all addresses and repeats nothing but what this package describes.
func New(target string, options ...Option) (*Client, error) {
	chosen := settings{credentials: insecure.NewCredentials(), reconnect: DefaultReconnect}
	for _, option := range options {
		option(&chosen)
	}
	spread := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second}
	conn, err := grpc.NewClient(target,
		grpc.WithTransportCredentials(chosen.credentials),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"round_robin": {}}]}`),
		grpc.WithDisableRetry(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: spread, MinConnectTimeout: 5 * time.Second}),
		// Finds out about a peer that is gone without a word.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
			invoke grpc.UnaryInvoker, options ...grpc.CallOption,
		) error {
			return invoke(authorised(ctx, chosen.apiKey), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, description *grpc.StreamDesc, conn *grpc.ClientConn, method string,
			open grpc.Streamer, options ...grpc.CallOption,
		) (grpc.ClientStream, error) {
			return open(authorised(ctx, chosen.apiKey), description, conn, method, options...)
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("relight: %w", err)
	}
	return &Client{Stub: v1.NewRecoveryServiceClient(conn), conn: conn, reconnect: chosen.reconnect}, nil
}

func authorised(ctx context.Context, apiKey string) context.Context {
	if apiKey == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+apiKey)
}

// Close ends the connections.
func (c *Client) Close() error {
	c.cancelling.Wait()
	return c.conn.Close()
}

// A Call is what is invoked: exactly one of Prompt, Messages and Model, and how.
type Call struct {
	// Prompt is the text of one user message.
	Prompt   string
	Messages []*v1.Message
	Model    *v1.ModelCall

	Route, Operation, ThreadID string
	Labels                     map[string]string
	Overrides                  *v1.Overrides
	// RequestID is made where it is empty.
	RequestID string
	// NotResumable cancels the invocation of a stream whose connection is lost.
	NotResumable bool
	// ReturnFailure ends a stream without an error where the invocation failed; Stream.Outcome has the failure.
	ReturnFailure bool
}

// Prompt returns a call with one user message.
func Prompt(text string) Call { return Call{Prompt: text} }

// User returns a message of the user, or of the agent in its place.
func User(text string) *v1.Message { return message(v1.Role_ROLE_USER, text) }

// System returns the operator's instructions.
func System(text string) *v1.Message { return message(v1.Role_ROLE_SYSTEM, text) }

func message(role v1.Role, text string) *v1.Message {
	part := &v1.Part{Content: &v1.Part_Text{Text: &v1.TextPart{Text: text}}}
	return &v1.Message{Role: role, Parts: []*v1.Part{part}}
}

func (call Call) invocation() *v1.Invocation {
	model := call.Model
	if model == nil {
		model = &v1.ModelCall{Messages: call.Messages}
		if call.Prompt != "" {
			model.Messages = []*v1.Message{User(call.Prompt)}
		}
	}
	invocation := call.named()
	invocation.Call = &v1.Invocation_Model{Model: model}
	return invocation
}

// named returns an invocation with everything but what is called.
func (call Call) named() *v1.Invocation {
	requestID := call.RequestID
	if requestID == "" {
		requestID = rand.Text()
	}
	return &v1.Invocation{
		Route: call.Route, Operation: call.Operation, ThreadId: call.ThreadID, Labels: call.Labels,
		Overrides: call.Overrides, RequestId: requestID,
	}
}

// A Tool is a call of a tool of a tool server.
type Tool struct {
	// Name is the tool's, or `server/tool` if several servers have it.
	Name string
	// Arguments are encoded as JSON; json.RawMessage stays as it is. Nil: none.
	Arguments any
	// Goal says what the call is for, in a few words.
	Goal string
	// CallID is the id of the call in the caller's conversation.
	CallID string
	// Meta is what an MCP server gets as `_meta` of the request.
	Meta        map[string]any
	SideEffects *v1.SideEffects
	// Call says how it is called; its prompt, messages and model are not looked at.
	Call Call
}

// ToolOf returns a call that a model wants, with its arguments and its id.
func ToolOf(call *v1.ToolCallPart) Tool {
	tool := Tool{Name: call.GetName(), CallID: call.GetId()}
	if call.GetArgumentsJson() != "" {
		tool.Arguments = json.RawMessage(call.GetArgumentsJson())
	}
	return tool
}

func (tool Tool) invocation() (*v1.Invocation, error) {
	call := &v1.ToolCall{Name: tool.Name, Goal: tool.Goal, CallId: tool.CallID, SideEffects: tool.SideEffects}
	if raw, ok := tool.Arguments.(json.RawMessage); ok {
		// What a model wrote may be no JSON: Relight says so.
		call.ArgumentsJson = string(raw)
	} else if tool.Arguments != nil {
		arguments, err := json.Marshal(tool.Arguments)
		if err != nil {
			return nil, fmt.Errorf("relight: the arguments of %s: %w", tool.Name, err)
		}
		// A nil map or pointer is none, too.
		if string(arguments) != "null" {
			call.ArgumentsJson = string(arguments)
		}
	}
	if tool.Meta != nil {
		meta, err := json.Marshal(tool.Meta)
		if err != nil {
			return nil, fmt.Errorf("relight: the meta of %s: %w", tool.Name, err)
		}
		call.MetaJson = string(meta)
	}
	invocation := tool.Call.named()
	invocation.Call = &v1.Invocation_Tool{Tool: call}
	return invocation, nil
}

// CallTool calls a tool and returns its result, or a *FailureError if it failed for good.
func (c *Client) CallTool(ctx context.Context, tool Tool) (*ToolResult, error) {
	outcome, err := c.TryCallTool(ctx, tool)
	if err != nil {
		return nil, err
	}
	if failed, ok := outcome.(*Failed); ok {
		return nil, &FailureError{Failure: failed.Failure, failed: failed}
	}
	return outcome.(*ToolResult), nil
}

// TryCallTool does the same, with a failure returned as *Failed.
func (c *Client) TryCallTool(ctx context.Context, tool Tool) (ToolOutcome, error) {
	invocation, err := tool.invocation()
	if err != nil {
		return nil, err
	}
	response, err := c.unary(ctx, invocation)
	if err != nil {
		return nil, err
	}
	return toolOutcome(response), nil
}

// Invoke invokes a model and returns its answer, or a *FailureError where the invocation failed for good.
func (c *Client) Invoke(ctx context.Context, call Call) (*Answer, error) {
	outcome, err := c.TryInvoke(ctx, call)
	if err != nil {
		return nil, err
	}
	if failed, ok := outcome.(*Failed); ok {
		return nil, &FailureError{Failure: failed.Failure, failed: failed}
	}
	return outcome.(*Answer), nil
}

// TryInvoke does the same, with a failure returned as *Failed.
func (c *Client) TryInvoke(ctx context.Context, call Call) (Outcome, error) {
	invocation := call.invocation()
	// However long the answer is, its turn in the history is whole.
	invocation.AnswerView = v1.AnswerView_ANSWER_VIEW_REPEATED
	response, err := c.unary(ctx, invocation)
	if err != nil {
		return nil, err
	}
	return fromResponse(response), nil
}

func (c *Client) unary(ctx context.Context, invocation *v1.Invocation) (*v1.InvokeWithRecoveryResponse, error) {
	request := &v1.InvokeWithRecoveryRequest{Invocation: invocation}
	retry := retry{reconnect: c.reconnect}
	for {
		var trailer metadata.MD
		response, err := c.Stub.InvokeWithRecovery(ctx, request, grpc.Trailer(&trailer))
		if err == nil {
			return response, nil
		}
		// The same request id: it joins what still runs, or gets the outcome once more.
		if err := retry.wait(ctx, fromRPC(err, trailer)); err != nil {
			return nil, err
		}
	}
}

// WatchOptions say which events a watcher gets, and where it begins. The zero value: all, from now on.
type WatchOptions struct {
	Filter *v1.RecoveryEventFilter
	// After is the cursor of an earlier event.
	After string
	// FromStart begins with the oldest event that is kept.
	FromStart bool
}

// Watch iterates over recovery events, and goes on after the last cursor when a connection is lost. It ends only with
// its loop, its context or an error. Missed is an event like any other; bookmarks are passed over.
func (c *Client) Watch(ctx context.Context, options WatchOptions) iter.Seq2[*v1.RecoveryEvent, error] {
	return func(yield func(*v1.RecoveryEvent, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		request := &v1.WatchRecoveryRequest{Filter: options.Filter, Start: &v1.WatchRecoveryRequest_Live{Live: true}}
		if options.After != "" {
			request.Start = &v1.WatchRecoveryRequest_After{After: options.After}
		} else if options.FromStart {
			request.Start = &v1.WatchRecoveryRequest_FromStart{FromStart: true}
		}
		retry := retry{reconnect: c.reconnect}
		for {
			stream, err := c.Stub.WatchRecovery(ctx, request)
			for err == nil {
				var response *v1.WatchRecoveryResponse
				if response, err = stream.Recv(); err != nil {
					break
				}
				retry.progressed()
				event := response.GetEvent()
				request.Start = &v1.WatchRecoveryRequest_After{After: event.GetCursor()}
				if event.GetBody() != nil && event.GetBookmark() == nil && !yield(event, nil) {
					return
				}
			}
			if err := retry.wait(ctx, fromRPC(err, trailerOf(stream))); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

func trailerOf(stream grpc.ClientStream) metadata.MD {
	if stream == nil {
		return nil
	}
	return stream.Trailer()
}

// cancel cancels what nobody waits for any more. What cannot be reached ends by its own deadline.
func (c *Client) cancel(ctx context.Context, invocationID, requestID string) {
	request := &v1.CancelInvocationRequest{Reason: "the caller left its stream"}
	switch {
	case invocationID != "":
		request.Invocation = &v1.CancelInvocationRequest_InvocationId{InvocationId: invocationID}
	case requestID != "":
		request.Invocation = &v1.CancelInvocationRequest_RequestId{RequestId: requestID}
	default:
		return
	}
	c.cancelling.Add(1)
	go func() {
		defer c.cancelling.Done()
		ctx, done := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
		defer done()
		_, _ = c.Stub.CancelInvocation(ctx, request)
	}()
}
