package dev.relight.client;

import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.function.Function;

/**
 * An answer that comes in pieces, and is read once. It survives its connection and the replica that serves it. Closing it
 * before its end cancels the invocation, as interrupting the thread that reads does.
 */
public final class AnswerStream<T> implements Iterable<T>, Iterator<T>, AutoCloseable {
  private final Reader reader;
  private final Function<Change, T> item;
  private final Function<String, T> whole;
  private final boolean throwFailure;
  private T next;
  private boolean ended;

  private AnswerStream(Reader reader, Function<Change, T> item, Function<String, T> whole, boolean throwFailure) {
    this.reader = reader;
    this.item = item;
    this.whole = whole;
    this.throwFailure = throwFailure;
  }

  /** Text as it comes, and what is taken back. */
  static AnswerStream<Change> live(Reader reader, boolean throwFailure) {
    return new AnswerStream<>(reader, change -> change, null, throwFailure);
  }

  /** Only text that is never taken back: at once where the service promises that, else all of it at the end. */
  static AnswerStream<String> finalText(Reader reader, boolean throwFailure) {
    Function<Change, String> item =
        change -> {
          if (!reader.isAtomic()) {
            return null;
          }
          if (change instanceof Change.Text text) {
            return text.text();
          }
          reader.leave(true);
          throw new ProtocolException("final text was taken back");
        };
    return new AnswerStream<>(reader, item, text -> text, throwFailure);
  }

  @Override
  public Iterator<T> iterator() {
    return this;
  }

  @Override
  public boolean hasNext() {
    while (next == null && !ended) {
      Change change = reader.next();
      if (change != null) {
        next = item.apply(change);
        continue;
      }
      ended = true;
      if (whole != null && !reader.isAtomic() && !reader.text().isEmpty()) {
        next = whole.apply(reader.text());
      } else if (throwFailure) {
        reader.outcome().orThrow();
      }
    }
    return next != null;
  }

  @Override
  public T next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    T found = next;
    next = null;
    return found;
  }

  /** How the invocation ended; known once the stream was read to its end. */
  public Outcome outcome() {
    return reader.outcome();
  }

  /** Ends the stream early and cancels the invocation. Any thread may call it. */
  @Override
  public void close() {
    reader.leave(true);
  }

  /** Ends the stream early and lets the invocation run for its grace, to be resumed. */
  public ResumePoint detach() {
    ResumePoint point = reader.resumePoint();
    reader.leave(false);
    return point;
  }
}
