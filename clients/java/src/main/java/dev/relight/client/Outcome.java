package dev.relight.client;

import dev.relight.v1.Attempt;
import dev.relight.v1.Failure;
import dev.relight.v1.InvokeWithRecoveryResponse;
import dev.relight.v1.Message;
import dev.relight.v1.Part;
import dev.relight.v1.ToolCallPart;
import dev.relight.v1.Usage;
import java.util.List;

/** How an invocation ended, as a unary call and a stream both return it. */
public sealed interface Outcome {
  /**
   * The invocation ended with an answer.
   *
   * @param text all text
   * @param toolCalls tools that the model wants called; each may be acted on
   * @param historyPatch what {@link #applyTo} appends
   * @param historyReplaceTail how many messages {@link #applyTo} replaces
   * @param invocationId id of the invocation
   * @param target id of the target that answered
   * @param attempts every attempt, in order
   * @param usage tokens of all attempts: what was spent
   */
  record Answer(
      String text,
      List<ToolCallPart> toolCalls,
      List<Message> historyPatch,
      int historyReplaceTail,
      String invocationId,
      String target,
      List<Attempt> attempts,
      Usage usage)
      implements Outcome {
    /** Brings the caller's history to what the model saw and said. Call it once. */
    public void applyTo(List<Message> history) {
      history.subList(history.size() - historyReplaceTail, history.size()).clear();
      history.addAll(historyPatch);
    }
  }

  /** The invocation ended with a failure, or was cancelled. */
  record Failed(Failure failure, String invocationId) implements Outcome {}

  /** The answer, or a {@link FailureException}. */
  default Answer orThrow() {
    if (this instanceof Failed failed) {
      throw new FailureException(failed.failure());
    }
    return (Answer) this;
  }

  /** Reads the outcome of a unary call. */
  static Outcome of(InvokeWithRecoveryResponse response) {
    if (response.hasFailure()) {
      return new Failed(response.getFailure(), response.getInvocationId());
    }
    var parts = response.getCompletion().getMessage().getPartsList();
    return new Answer(
        response.getCompletion().getText(),
        parts.stream().filter(Part::hasToolCall).map(Part::getToolCall).toList(),
        response.getHistoryPatchList(),
        response.getHistoryReplaceTail(),
        response.getInvocationId(),
        response.getFinalTarget(),
        response.getAttemptsList(),
        response.getUsage());
  }
}
