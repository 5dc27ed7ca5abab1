package dev.relight.client;

/** Base of all exceptions of this package. */
public class RelightException extends RuntimeException {
  RelightException(String message) {
    super(message);
  }
}
