package dev.relight.client;

import dev.relight.v1.Failure;
import dev.relight.v1.Message;
import java.util.List;
import java.util.Locale;

/** The invocation ended with a failure, which Relight judged. */
public final class FailureException extends RelightException {
  private final transient Outcome.Failed failed;

  FailureException(Outcome.Failed failed) {
    super(describe(failed.failure()));
    this.failed = failed;
  }

  /** All that Relight says of the failure. */
  public Failure failure() {
    return failed.failure();
  }

  /** Appends the error of a tool to the caller's history, so that its model reads it. Call it once. */
  public void applyTo(List<Message> history) {
    failed.applyTo(history);
  }

  private static String describe(Failure failure) {
    String name = failure.getFailureClass().name().replace("FAILURE_CLASS_", "").toLowerCase(Locale.ROOT);
    return name + ": " + (failure.getMessage().isEmpty() ? failure.getUserMessage() : failure.getMessage());
  }
}
