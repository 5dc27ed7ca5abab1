package dev.relight.client;

import io.grpc.stub.AbstractStub;
import java.time.Duration;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/** The attempts that are left to one call, and its deadline. */
final class Retry {
  private final Reconnect reconnect;
  private final boolean bounded;
  private final long deadline;
  private int failed;

  Retry(Reconnect reconnect, Duration timeout) {
    this.reconnect = reconnect;
    this.bounded = timeout != null;
    this.deadline = bounded ? System.nanoTime() + timeout.toNanos() : 0;
  }

  void progressed() {
    failed = 0;
  }

  /** The stub with the time that is left. */
  <S extends AbstractStub<S>> S within(S stub) {
    return bounded ? stub.withDeadlineAfter(Math.max(deadline - System.nanoTime(), 0), TimeUnit.NANOSECONDS) : stub;
  }

  /** Waits before the next attempt, or throws {@code error} when there is none. */
  void await(StatusException error) {
    if (!error.isTransient() || failed >= reconnect.attempts()) {
      throw error;
    }
    long most = Math.min(reconnect.firstWait().toNanos() << Math.min(failed, 20), reconnect.maxWait().toNanos());
    long backoff = (long) (most * ThreadLocalRandom.current().nextDouble(0.5, 1.0));
    long pause = Math.max(backoff, error.retryAfter().toNanos());
    if (bounded && pause >= deadline - System.nanoTime()) {
      throw StatusException.late("no time is left to try again after: " + error.getMessage());
    }
    failed++;
    try {
      TimeUnit.NANOSECONDS.sleep(pause);
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw StatusException.cancelled();
    }
  }
}
