package relight

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Reconnect says how often a lost connection, or a replica that is going away, is tried again without any progress
// between.
type Reconnect struct {
	Attempts int
	// Wait is the first wait, doubled up to MaxWait; each is spread by half of itself.
	Wait, MaxWait time.Duration
}

// DefaultReconnect outlasts the takeover of a replica that was killed.
var DefaultReconnect = Reconnect{Attempts: 12, Wait: 100 * time.Millisecond, MaxWait: 2 * time.Second}

// retry holds the attempts that are left to one call; its deadline is that of the context.
type retry struct {
	reconnect Reconnect
	failed    int
}

func (r *retry) progressed() { r.failed = 0 }

// wait waits before the next attempt, or returns the error with which the call ends.
func (r *retry) wait(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("relight: %w", ctx.Err())
	}
	var status *StatusError
	if !errors.As(err, &status) || !status.Transient || r.failed >= r.reconnect.Attempts {
		return err
	}
	backoff := min(r.reconnect.Wait<<min(r.failed, 20), r.reconnect.MaxWait)
	pause := max(backoff/2+rand.N(backoff/2+1), status.RetryAfter)
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= pause {
		return fmt.Errorf("relight: %w: no time is left to try again after: %w", context.DeadlineExceeded, err)
	}
	r.failed++
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("relight: %w", ctx.Err())
	}
}
