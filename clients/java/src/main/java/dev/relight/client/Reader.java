package dev.relight.client;

import dev.relight.v1.AnswerView;
import dev.relight.v1.BlockKind;
import dev.relight.v1.Resume;
import dev.relight.v1.RewindMode;
import dev.relight.v1.StreamEvent;
import dev.relight.v1.StreamWithRecoveryRequest;
import dev.relight.v1.StreamWithRecoveryResponse;
import dev.relight.v1.Terminal;
import dev.relight.v1.ToolCallPart;
import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Iterator;

/** Reads one invocation over as many connections as it takes, and finds out what of its text changes. */
final class Reader {
  /** How often events that do not fit are read again from the beginning. */
  private static final int MAX_MISFITS = 3;

  private final RelightClient client;
  private final Retry retry;
  private final StreamWithRecoveryRequest request;
  private final Deque<Change> changes = new ArrayDeque<>();
  private final StringBuilder shown = new StringBuilder();
  private volatile Context.CancellableContext call;
  private volatile boolean left;
  private volatile Fold fold = new Fold();
  private Iterator<StreamWithRecoveryResponse> responses;
  private String token = "";
  private boolean isAtomic;
  private int lastText;
  private int misfits;

  /** Whether events are read again that were shown already. */
  private boolean catchingUp;

  Reader(RelightClient client, Retry retry, StreamWithRecoveryRequest request) {
    this.client = client;
    this.retry = retry;
    this.request = request;
  }

  /** Whether the service promises that nothing is taken back. */
  boolean isAtomic() {
    return isAtomic;
  }

  String text() {
    return fold.text();
  }

  /** The next change; null at the end. */
  Change next() {
    try {
      while (changes.isEmpty() && fold.terminal() == null) {
        step();
      }
    } catch (ProtocolException unfit) {
      leave(true);
      throw unfit;
    } catch (StatusException ended) {
      // Whoever interrupts a thread waits for no answer. Otherwise it may be resumed by its request id.
      leave(Thread.currentThread().isInterrupted());
      throw ended;
    }
    if (changes.isEmpty()) {
      hangUp();
    }
    return changes.poll();
  }

  /** Ends the stream. A resumable invocation runs on for its grace unless it is cancelled. */
  synchronized void leave(boolean cancel) {
    if (left || fold.terminal() != null || call == null) {
      return;
    }
    left = true;
    if (cancel) {
      // First the cancellation, as whoever reads may close the client as soon as the stream ends.
      client.cancel(fold.invocationId(), requestId());
    }
    hangUp();
  }

  ResumePoint resumePoint() {
    if (token.isEmpty()) {
      throw new RelightException("nothing was accepted yet, or nothing is kept, so that nothing can be resumed");
    }
    // A token of a resumed stream stands for the place where that began, and not for the whole answer.
    String asked = request.getResume().getToken();
    return new ResumePoint(asked.isEmpty() ? token : asked, requestId());
  }

  Outcome outcome() {
    Terminal terminal = fold.terminal();
    if (terminal == null) {
      throw new RelightException("the stream was not read to its end");
    }
    if (terminal.hasFailed()) {
      return new Outcome.Failed(terminal.getFailed(), terminal.getHistoryPatchList(), fold.invocationId());
    }
    if (terminal.hasCancelled()) {
      var failure = terminal.getCancelled().getFailure();
      return new Outcome.Failed(failure, terminal.getHistoryPatchList(), fold.invocationId());
    }
    var calls = fold.ofKind(BlockKind.BLOCK_KIND_TOOL_CALL).stream().filter(Fold.Block::committed);
    return new Outcome.Answer(
        fold.text(),
        calls.map(Reader::toolCall).toList(),
        terminal.getCompleted().getHistoryPatchList(),
        terminal.getCompleted().getHistoryReplaceTail(),
        fold.invocationId(),
        terminal.getFinalTarget(),
        terminal.getAttemptsList(),
        terminal.getUsage(),
        terminal.getCompleted().getAround().getData().toStringUtf8());
  }

  private static ToolCallPart toolCall(Fold.Block block) {
    return ToolCallPart.newBuilder()
        .setId(block.start().getCallId())
        .setName(block.start().getToolName())
        .setArgumentsJson(block.text())
        .build();
  }

  private String requestId() {
    return request.hasInvocation() ? request.getInvocation().getRequestId() : request.getResume().getRequestId();
  }

  /** Reads one event, on a new connection where there is none. */
  private void step() {
    try {
      if (responses == null) {
        connect();
      }
      if (responses.hasNext()) {
        take(responses.next().getEvent());
      } else {
        reconnect(StatusException.lost("the stream ended without a Terminal"));
      }
    } catch (StatusRuntimeException error) {
      reconnect(StatusException.of(error));
    } catch (Misfit misfit) {
      if (++misfits > MAX_MISFITS) {
        throw new ProtocolException(misfit.getMessage());
      }
      hangUp();
      fold = new Fold();
      catchingUp = true;
      reconnect(StatusException.lost(misfit.getMessage()));
    }
  }

  private void connect() {
    synchronized (this) {
      if (left) {
        throw StatusException.cancelled();
      }
      call = Context.current().withCancellation();
    }
    Context earlier = call.attach();
    try {
      responses = retry.within(client.stub()).streamWithRecovery(nextRequest());
    } finally {
      call.detach(earlier);
    }
  }

  /** The first request again, which its request id makes idempotent, or what is missing after the cursor. */
  private StreamWithRecoveryRequest nextRequest() {
    if (token.isEmpty() || fold.cursor() == null) {
      return request;
    }
    Resume.Builder resume = Resume.newBuilder().setToken(token).setCursor(fold.cursor());
    resume.setAnswerView(AnswerView.ANSWER_VIEW_REPEATED);
    return StreamWithRecoveryRequest.newBuilder().setResume(resume).build();
  }

  private void hangUp() {
    if (call != null) {
      call.cancel(null);
    }
  }

  private void reconnect(StatusException lost) {
    hangUp();
    responses = null;
    if (left || Thread.currentThread().isInterrupted()) {
      throw StatusException.cancelled();
    }
    client.forgetBackoff();
    retry.await(lost);
  }

  private void take(StreamEvent event) throws Misfit {
    if (event.hasAccepted()) {
      token = event.getAccepted().getResumeToken().isEmpty() ? token : event.getAccepted().getResumeToken();
      isAtomic = event.getAccepted().getRewindMode() == RewindMode.REWIND_MODE_ATOMIC;
    }
    if (fold.apply(event)) {
      retry.progressed();
      compare(event);
    }
  }

  /** What the event changed of the text. A delta at the end is passed on as it is; all else is compared. */
  private void compare(StreamEvent event) {
    switch (event.getBodyCase()) {
      case BLOCK_DELTA -> {
        if (event.getBlockDelta().getBlockId() == lastText && !catchingUp) {
          show(event.getBlockDelta().getText());
          return;
        }
      }
      case BLOCK_START, REWIND, SNAPSHOT, TERMINAL -> {}
      default -> {
        return;
      }
    }
    lastText = fold.lastText();
    String now = fold.text();
    String before = shown.toString();
    if (catchingUp && before.startsWith(now) && !event.hasTerminal()) {
      return;
    }
    catchingUp = false;
    if (!now.startsWith(before)) {
      before = commonPrefix(before, now);
      shown.setLength(before.length());
      changes.add(new Change.Rewind(before));
    }
    if (now.length() > before.length()) {
      show(now.substring(before.length()));
    }
  }

  private void show(String text) {
    shown.append(text);
    changes.add(new Change.Text(text));
  }

  /** The longest common beginning, which never ends inside a code point. */
  private static String commonPrefix(String one, String other) {
    int length = 0;
    while (length < Math.min(one.length(), other.length()) && one.charAt(length) == other.charAt(length)) {
      length++;
    }
    if (length > 0 && Character.isHighSurrogate(one.charAt(length - 1))) {
      length--;
    }
    return one.substring(0, length);
  }
}
