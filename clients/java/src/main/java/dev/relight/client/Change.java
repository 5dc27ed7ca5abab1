package dev.relight.client;

/** A change of the text that is shown. */
public sealed interface Change {
  /** More of the answer's text. */
  record Text(String text) implements Change {}

  /** The end of what was shown is taken back: {@code kept} is the text that remains, all of it. */
  record Rewind(String kept) implements Change {}
}
