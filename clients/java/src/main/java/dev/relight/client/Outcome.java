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
   * @param aroundJson what the provider says around its answer and no other field has ({@code service_tier}, {@code
   *     system_fingerprint}, …): a JSON object; empty if it says nothing
   */
  record Answer(
      String text,
      List<ToolCallPart> toolCalls,
      List<Message> historyPatch,
      int historyReplaceTail,
      String invocationId,
      String target,
      List<Attempt> attempts,
      Usage usage,
      String aroundJson)
      implements Outcome {
    /** Brings the caller's history to what the model saw and said. Call it once. */
    public void applyTo(List<Message> history) {
      history.subList(history.size() - historyReplaceTail, history.size()).clear();
      history.addAll(historyPatch);
    }
  }

  /**
   * The invocation ended with a failure, or was cancelled.
   *
   * @param failure all that Relight says of the failure
   * @param historyPatch what {@link #applyTo} appends; empty for a call of a model
   * @param invocationId id of the invocation
   */
  record Failed(Failure failure, List<Message> historyPatch, String invocationId) implements Outcome, ToolOutcome {
    /** Appends the error of a tool to the caller's history, so that its model reads it. Call it once. */
    @Override
    public void applyTo(List<Message> history) {
      history.addAll(historyPatch);
    }

    static Failed of(InvokeWithRecoveryResponse response) {
      return new Failed(response.getFailure(), response.getHistoryPatchList(), response.getInvocationId());
    }
  }

  /** The answer, or a {@link FailureException}. */
  default Answer orThrow() {
    if (this instanceof Failed failed) {
      throw new FailureException(failed);
    }
    return (Answer) this;
  }

  /** Reads the outcome of a unary call. */
  static Outcome of(InvokeWithRecoveryResponse response) {
    if (response.hasFailure()) {
      return Failed.of(response);
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
        response.getUsage(),
        response.getCompletion().getAround().getData().toStringUtf8());
  }
}
