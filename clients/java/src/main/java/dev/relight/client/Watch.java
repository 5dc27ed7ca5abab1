package dev.relight.client;

import dev.relight.v1.RecoveryEvent;
import dev.relight.v1.WatchRecoveryRequest;
import dev.relight.v1.WatchRecoveryResponse;
import io.grpc.Context;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.NoSuchElementException;

/**
 * Recovery events, over as many connections as it takes: after a lost one it goes on after its cursor.
 *
 * <p>It ends only by {@link #close}, by its timeout, or by an exception. {@code Missed} is an event like any other;
 * bookmarks only move the cursor.
 */
public final class Watch implements Iterable<RecoveryEvent>, Iterator<RecoveryEvent>, AutoCloseable {
  private final RelightClient client;
  private final Retry retry;
  private final Context.CancellableContext call = Context.current().withCancellation();
  private WatchRecoveryRequest request;
  private Iterator<WatchRecoveryResponse> responses;
  private RecoveryEvent next;

  Watch(RelightClient client, Retry retry, WatchRecoveryRequest request) {
    this.client = client;
    this.retry = retry;
    this.request = request;
  }

  /** Place in the feed after the last event: give it to {@link RelightClient#watchAfter} to go on from there. */
  public String cursor() {
    return request.getAfter();
  }

  @Override
  public Iterator<RecoveryEvent> iterator() {
    return this;
  }

  @Override
  public boolean hasNext() {
    while (next == null && !call.isCancelled()) {
      try {
        step();
      } catch (StatusRuntimeException error) {
        reconnect(StatusException.of(error));
      }
    }
    return next != null;
  }

  @Override
  public RecoveryEvent next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    RecoveryEvent found = next;
    next = null;
    return found;
  }

  /** Ends the iteration. Any thread may call it. */
  @Override
  public void close() {
    call.cancel(null);
  }

  private void step() {
    if (responses == null) {
      Context earlier = call.attach();
      try {
        responses = retry.within(client.stub()).watchRecovery(request);
      } finally {
        call.detach(earlier);
      }
    }
    if (!responses.hasNext()) {
      reconnect(StatusException.lost("the feed ended"));
      return;
    }
    RecoveryEvent event = responses.next().getEvent();
    retry.progressed();
    request = request.toBuilder().setAfter(event.getCursor()).build();
    if (!event.hasBookmark() && event.getBodyCase() != RecoveryEvent.BodyCase.BODY_NOT_SET) {
      next = event;
    }
  }

  private void reconnect(StatusException lost) {
    responses = null;
    if (call.isCancelled()) {
      return;
    }
    if (Thread.currentThread().isInterrupted()) {
      throw StatusException.cancelled();
    }
    client.forgetBackoff();
    retry.await(lost);
  }
}
