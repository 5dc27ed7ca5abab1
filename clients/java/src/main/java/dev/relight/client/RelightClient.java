package dev.relight.client;

import dev.relight.v1.AnswerView;
import dev.relight.v1.CancelInvocationRequest;
import dev.relight.v1.InvokeWithRecoveryRequest;
import dev.relight.v1.InvokeWithRecoveryResponse;
import dev.relight.v1.Invocation;
import dev.relight.v1.RecoveryEventFilter;
import dev.relight.v1.RecoveryServiceGrpc;
import dev.relight.v1.Resume;
import dev.relight.v1.RewindMode;
import dev.relight.v1.StreamWithRecoveryRequest;
import dev.relight.v1.WatchRecoveryRequest;
import io.grpc.ChannelCredentials;
import io.grpc.Context;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.MetadataUtils;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/**
 * Calls Relight: calls of models and tools that are retried, failed over and resumed. Threads may share one.
 *
 * <pre>{@code
 * try (var client = RelightClient.connect("127.0.0.1:50051")) {
 *   System.out.println(client.invoke(Call.of("Why is the sky blue?")).text());
 * }
 * }</pre>
 */
public final class RelightClient implements AutoCloseable {
  private static final Metadata.Key<String> AUTHORIZATION =
      Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
  private static final long CANCEL_TIMEOUT_S = 5;

  private final ManagedChannel channel;
  private final Metadata headers = new Metadata();
  private final Duration timeout;
  private final Reconnect reconnect;
  private final Set<Future<?>> cancelling = ConcurrentHashMap.newKeySet();

  private RelightClient(Builder builder) {
    // It spreads calls over all addresses of the target and repeats nothing by itself. Its keepalive finds out about a peer
    // that is gone without a word.
    channel =
        Grpc.newChannelBuilder(builder.target, builder.credentials)
            .defaultLoadBalancingPolicy("round_robin")
            .disableRetry()
            .maxInboundMessageSize(Integer.MAX_VALUE)
            .keepAliveTime(20, TimeUnit.SECONDS)
            .keepAliveTimeout(10, TimeUnit.SECONDS)
            .build();
    if (builder.apiKey != null) {
      headers.put(AUTHORIZATION, "Bearer " + builder.apiKey);
    }
    timeout = builder.timeout;
    reconnect = builder.reconnect;
  }

  /**
   * A client without TLS and key.
   *
   * @param target {@code host:port}, or {@code dns:///relight-headless:50051} for all replicas behind a name
   */
  public static RelightClient connect(String target) {
    return builder(target).build();
  }

  /** A client of this target with settings of its own. */
  public static Builder builder(String target) {
    return new Builder(target);
  }

  /** Settings of a client. */
  public static final class Builder {
    private final String target;
    private ChannelCredentials credentials = InsecureChannelCredentials.create();
    private String apiKey;
    private Duration timeout;
    private Reconnect reconnect = Reconnect.DEFAULT;

    private Builder(String target) {
      this.target = target;
    }

    /** Encrypts the connection, as {@link io.grpc.TlsChannelCredentials} says. */
    public Builder tls(ChannelCredentials credentials) {
      this.credentials = credentials;
      return this;
    }

    /** Sends this key with every call. */
    public Builder apiKey(String apiKey) {
      this.apiKey = apiKey;
      return this;
    }

    /** Time for each call that names none. */
    public Builder timeout(Duration timeout) {
      this.timeout = timeout;
      return this;
    }

    /** Replaces {@link Reconnect#DEFAULT}. */
    public Builder reconnect(Reconnect reconnect) {
      this.reconnect = reconnect;
      return this;
    }

    /** The client. */
    public RelightClient build() {
      return new RelightClient(this);
    }
  }

  /** Invokes a model and returns its answer; throws {@link FailureException} where the invocation failed for good. */
  public Outcome.Answer invoke(Call call) {
    return tryInvoke(call).orThrow();
  }

  /** The same, with a failure returned as {@link Outcome.Failed}. */
  public Outcome tryInvoke(Call call) {
    return Outcome.of(unary(call));
  }

  /**
   * Calls a tool of a tool server, as {@link Call#tool} says, and returns its result; throws {@link FailureException} if it
   * failed for good.
   */
  public ToolOutcome.Result callTool(Call call) {
    return tryCallTool(call).resultOrThrow();
  }

  /** The same, with a failure returned as {@link Outcome.Failed}. */
  public ToolOutcome tryCallTool(Call call) {
    return ToolOutcome.of(unary(call));
  }

  private InvokeWithRecoveryResponse unary(Call call) {
    // However long the answer is, its turn in the history is whole.
    var invocation = call.invocation().toBuilder().setAnswerView(AnswerView.ANSWER_VIEW_REPEATED);
    var request = InvokeWithRecoveryRequest.newBuilder().setInvocation(invocation).build();
    Retry retry = retry(call.timeout());
    while (true) {
      try {
        return retry.within(stub()).invokeWithRecovery(request);
      } catch (StatusRuntimeException error) {
        if (Thread.currentThread().isInterrupted()) {
          throw StatusException.cancelled();
        }
        // The same request id: it joins what still runs, or gets the outcome once more.
        forgetBackoff();
        retry.await(StatusException.of(error));
      }
    }
  }

  /** Streams text that is final. */
  public AnswerStream<String> stream(Call call) {
    return AnswerStream.finalText(reader(call, RewindMode.REWIND_MODE_ATOMIC), call.throwsFailure());
  }

  /** Streams text as it comes, and where it is taken back. */
  public AnswerStream<Change> streamLive(Call call) {
    return AnswerStream.live(reader(call, RewindMode.REWIND_MODE_REWIND), call.throwsFailure());
  }

  /** Streams the whole answer of an earlier stream that was detached, here or in another process. */
  public AnswerStream<String> resume(ResumePoint point) {
    return AnswerStream.finalText(reader(point), true);
  }

  /** The same, as text comes and is taken back. */
  public AnswerStream<Change> resumeLive(ResumePoint point) {
    return AnswerStream.live(reader(point), true);
  }

  /** Recovery events from now on. */
  public Watch watch(RecoveryEventFilter filter) {
    return watch(WatchRecoveryRequest.newBuilder().setFilter(filter).setLive(true));
  }

  /** Recovery events after the cursor of an earlier one. */
  public Watch watchAfter(RecoveryEventFilter filter, String cursor) {
    return watch(WatchRecoveryRequest.newBuilder().setFilter(filter).setAfter(cursor));
  }

  /** All recovery events that are kept, and those that follow. */
  public Watch watchFromStart(RecoveryEventFilter filter) {
    return watch(WatchRecoveryRequest.newBuilder().setFilter(filter).setFromStart(true));
  }

  /** The generated stub, for every other RPC. */
  public RecoveryServiceGrpc.RecoveryServiceBlockingStub stub() {
    var stub = RecoveryServiceGrpc.newBlockingStub(channel);
    return stub.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Ends the connections. */
  @Override
  public void close() {
    try {
      for (Future<?> call : cancelling) {
        try {
          call.get();
        } catch (ExecutionException unreachable) {
          // It ends by its own deadline.
          continue;
        }
      }
      channel.shutdownNow().awaitTermination(CANCEL_TIMEOUT_S, TimeUnit.SECONDS);
    } catch (InterruptedException interrupted) {
      channel.shutdownNow();
      Thread.currentThread().interrupt();
    }
  }

  /** Lets the next call connect at once; how long to wait is decided by {@link Retry}. */
  void forgetBackoff() {
    channel.resetConnectBackoff();
  }

  /** Cancels what nobody waits for any more. What cannot be reached ends by its own deadline. */
  void cancel(String invocationId, String requestId) {
    var request = CancelInvocationRequest.newBuilder().setReason("the caller left its stream");
    if (!invocationId.isEmpty()) {
      request.setInvocationId(invocationId);
    } else if (!requestId.isEmpty()) {
      request.setRequestId(requestId);
    } else {
      return;
    }
    // Apart from the context of the caller, which may be over.
    Context earlier = Context.ROOT.attach();
    try {
      var stub = RecoveryServiceGrpc.newFutureStub(channel).withDeadlineAfter(CANCEL_TIMEOUT_S, TimeUnit.SECONDS);
      var call = stub.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(headers)).cancelInvocation(request.build());
      cancelling.add(call);
      call.addListener(() -> cancelling.remove(call), Runnable::run);
    } finally {
      Context.ROOT.detach(earlier);
    }
  }

  private Reader reader(Call call, RewindMode mode) {
    Invocation.Builder invocation = call.invocation().toBuilder();
    invocation.setAnswerView(AnswerView.ANSWER_VIEW_REPEATED);
    var overrides = invocation.getOverridesBuilder();
    boolean live = mode == RewindMode.REWIND_MODE_REWIND;
    if (!live || overrides.getRewindMode() == RewindMode.REWIND_MODE_UNSPECIFIED) {
      overrides.setRewindMode(mode);
    }
    if (call.isResumable()) {
      overrides.getResumableBuilder();
    }
    var request = StreamWithRecoveryRequest.newBuilder().setInvocation(invocation).build();
    return new Reader(this, retry(call.timeout()), request);
  }

  private Reader reader(ResumePoint point) {
    Resume.Builder resume = Resume.newBuilder().setToken(point.token());
    resume.setAnswerView(AnswerView.ANSWER_VIEW_REPEATED);
    if (!point.requestId().isEmpty()) {
      resume.setRequestId(point.requestId());
    }
    return new Reader(this, retry(null), StreamWithRecoveryRequest.newBuilder().setResume(resume).build());
  }

  private Watch watch(WatchRecoveryRequest.Builder request) {
    return new Watch(this, new Retry(reconnect, null), request.build());
  }

  private Retry retry(Duration ofCall) {
    return new Retry(reconnect, ofCall == null ? timeout : ofCall);
  }
}
