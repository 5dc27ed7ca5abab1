package dev.relight.client;

import dev.relight.v1.Failure;
import java.util.Locale;

/** The invocation ended with a failure, which Relight judged. */
public final class FailureException extends RelightException {
  private final transient Failure failure;

  FailureException(Failure failure) {
    super(describe(failure));
    this.failure = failure;
  }

  /** All that Relight says of the failure. */
  public Failure failure() {
    return failure;
  }

  private static String describe(Failure failure) {
    String name = failure.getFailureClass().name().replace("FAILURE_CLASS_", "").toLowerCase(Locale.ROOT);
    return name + ": " + (failure.getMessage().isEmpty() ? failure.getUserMessage() : failure.getMessage());
  }
}
