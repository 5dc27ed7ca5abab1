package dev.relight.client;

import dev.relight.v1.Attempt;
import dev.relight.v1.InvokeWithRecoveryResponse;
import dev.relight.v1.Message;
import dev.relight.v1.ToolOutput;
import java.util.List;

/** How a call of a tool ended: {@link Result} or {@link Outcome.Failed}. */
public sealed interface ToolOutcome permits ToolOutcome.Result, Outcome.Failed {
  /**
   * The tool returned a result.
   *
   * @param text all its texts, joined by line feeds
   * @param output the result word for word, and what was done to get it; {@code getStructuredJson()} is the result as data
   * @param historyPatch what {@link #applyTo} appends
   * @param invocationId id of the invocation
   * @param target id of the target that returned it, {@code server/tool}
   * @param attempts every attempt, in order
   */
  record Result(
      String text,
      ToolOutput output,
      List<Message> historyPatch,
      String invocationId,
      String target,
      List<Attempt> attempts)
      implements ToolOutcome {
    /** Appends the result to the caller's history, after its call if the caller named none. Call it once. */
    @Override
    public void applyTo(List<Message> history) {
      history.addAll(historyPatch);
    }
  }

  /** Appends the result or the error to the caller's history, for the model that called. Call it once. */
  void applyTo(List<Message> history);

  /** The result, or a {@link FailureException}. */
  default Result resultOrThrow() {
    if (this instanceof Outcome.Failed failed) {
      throw new FailureException(failed);
    }
    return (Result) this;
  }

  /** Reads the outcome of a unary call. */
  static ToolOutcome of(InvokeWithRecoveryResponse response) {
    if (response.hasFailure()) {
      return Outcome.Failed.of(response);
    }
    return new Result(
        response.getCompletion().getText(),
        response.getCompletion().getToolOutput(),
        response.getHistoryPatchList(),
        response.getInvocationId(),
        response.getFinalTarget(),
        response.getAttemptsList());
  }
}
