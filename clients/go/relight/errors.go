package relight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	v1 "relight.dev/api/relight/v1"
)

// ErrProtocol is returned where the events of a stream do not fit together, also after they were fetched again.
var ErrProtocol = errors.New("relight: the events of the stream do not fit together")

// ErrUnfinished is returned for the outcome of a stream that was not read to its end.
var ErrUnfinished = errors.New("relight: the stream was not read to its end")

// A StatusError says that Relight refused the call, or could not be reached. It speaks of Relight, never of a model.
type StatusError struct {
	Code    codes.Code
	Message string
	// Reason is that of google.rpc.ErrorInfo (`ROUTE_NOT_FOUND`); empty where Relight could not be reached.
	Reason string
	// RetryAfter is the least wait before it makes sense to call again.
	RetryAfter time.Duration
	// Transient says whether the same call may succeed later. It was repeated already, as often as the client allows.
	Transient bool
}

// Error returns the status in one line.
func (e *StatusError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("relight: %s: %s", e.Code, e.Message)
	}
	return fmt.Sprintf("relight: %s (%s): %s", e.Code, e.Reason, e.Message)
}

// Is matches the errors of a context, so that callers need not know where a deadline was noticed.
func (e *StatusError) Is(target error) bool {
	return e.Code == codes.DeadlineExceeded && target == context.DeadlineExceeded ||
		e.Code == codes.Canceled && target == context.Canceled
}

// A FailureError says that the invocation ended with a failure, which Relight judged.
type FailureError struct {
	Failure *v1.Failure

	failed *Failed
}

// ApplyTo returns the history with the error of a tool, so that its model reads it. Call it once.
func (e *FailureError) ApplyTo(history []*v1.Message) []*v1.Message { return e.failed.ApplyTo(history) }

// Error returns the class and the message of the failure.
func (e *FailureError) Error() string {
	class := strings.ToLower(strings.TrimPrefix(e.Failure.GetFailureClass().String(), "FAILURE_CLASS_"))
	message := e.Failure.GetMessage()
	if message == "" {
		message = e.Failure.GetUserMessage()
	}
	return fmt.Sprintf("relight: %s: %s", class, message)
}

// fromRPC reads what a status says about itself.
func fromRPC(err error, trailer metadata.MD) *StatusError {
	if errors.Is(err, io.EOF) {
		return lost("the stream ended before its time")
	}
	said := status.Convert(err)
	found := &StatusError{Code: said.Code(), Message: said.Message()}
	for _, detail := range said.Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			found.Reason = detail.GetReason()
		case *errdetails.RetryInfo:
			found.RetryAfter = detail.GetRetryDelay().AsDuration()
		}
	}
	// Relight marks its own statuses that must not be repeated; others may be the transport's.
	for _, pushback := range trailer.Get("grpc-retry-pushback-ms") {
		if strings.HasPrefix(pushback, "-") {
			return found
		}
	}
	switch said.Code() {
	case codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.Canceled:
		found.Transient = true
	}
	return found
}

func lost(message string) *StatusError {
	return &StatusError{Code: codes.Unavailable, Message: message, Transient: true}
}
