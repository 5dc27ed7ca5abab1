package dev.relight.client;

/** An event does not fit what is held; the invocation has to be read again from its beginning. */
final class Misfit extends Exception {
  Misfit(String message) {
    super(message);
  }
}
