package dev.relight.client;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import com.google.rpc.RetryInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Set;

/** Relight refused the call, or could not be reached. Speaks of Relight, never of a model. */
public final class StatusException extends RelightException {
  private static final Metadata.Key<String> PUSHBACK =
      Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);

  /**
   * A status with one of these codes may be the transport's and not Relight's. Relight marks its own that must not be
   * repeated with a negative pushback.
   */
  private static final Set<Status.Code> TRANSIENT =
      EnumSet.of(
          Status.Code.UNAVAILABLE,
          Status.Code.RESOURCE_EXHAUSTED,
          Status.Code.INTERNAL,
          Status.Code.UNKNOWN,
          Status.Code.CANCELLED);

  private final Status.Code code;
  private final String reason;
  private final Duration retryAfter;
  private final boolean isTransient;

  StatusException(Status.Code code, String message, String reason, Duration retryAfter, boolean isTransient) {
    super(code + (reason.isEmpty() ? "" : " (" + reason + ")") + ": " + message);
    this.code = code;
    this.reason = reason;
    this.retryAfter = retryAfter;
    this.isTransient = isTransient;
  }

  /** The status. */
  public Status.Code code() {
    return code;
  }

  /** The `reason` of google.rpc.ErrorInfo (`ROUTE_NOT_FOUND`); empty where Relight could not be reached. */
  public String reason() {
    return reason;
  }

  /** The least wait before it makes sense to call again. */
  public Duration retryAfter() {
    return retryAfter;
  }

  /** Whether the same call may succeed later. It was repeated already, as often as the client allows. */
  public boolean isTransient() {
    return isTransient;
  }

  static StatusException lost(String message) {
    return new StatusException(Status.Code.UNAVAILABLE, message, "", Duration.ZERO, true);
  }

  static StatusException late(String message) {
    return new StatusException(Status.Code.DEADLINE_EXCEEDED, message, "", Duration.ZERO, false);
  }

  static StatusException cancelled() {
    return new StatusException(Status.Code.CANCELLED, "the caller left", "", Duration.ZERO, false);
  }

  /** Reads what a status says about itself. */
  static StatusException of(StatusRuntimeException error) {
    String reason = "";
    Duration retryAfter = Duration.ZERO;
    com.google.rpc.Status details = StatusProto.fromThrowable(error);
    for (Any detail : details == null ? java.util.List.<Any>of() : details.getDetailsList()) {
      try {
        if (detail.is(ErrorInfo.class)) {
          reason = detail.unpack(ErrorInfo.class).getReason();
        } else if (detail.is(RetryInfo.class)) {
          var delay = detail.unpack(RetryInfo.class).getRetryDelay();
          retryAfter = Duration.ofSeconds(delay.getSeconds(), delay.getNanos());
        }
      } catch (InvalidProtocolBufferException foreign) {
        // A proxy's own details; the message says it all.
        continue;
      }
    }
    String pushback = error.getTrailers() == null ? null : error.getTrailers().get(PUSHBACK);
    boolean never = pushback != null && pushback.startsWith("-");
    Status.Code code = error.getStatus().getCode();
    String message = String.valueOf(error.getStatus().getDescription());
    return new StatusException(code, message, reason, retryAfter, TRANSIENT.contains(code) && !never);
  }
}
