package dev.relight.client;

/** The events of a stream do not fit together, also after they were fetched again. */
public final class ProtocolException extends RelightException {
  ProtocolException(String message) {
    super(message);
  }
}
