/** Recovery events, live, over as many connections as it takes. */
import type { ClientReadableStream } from "@grpc/grpc-js";
import type { Retry } from "./connection.js";
import { fromRpc, lost, StatusError } from "./errors.js";
import type { RecoveryEvent, WatchRecoveryRequest, WatchRecoveryResponse } from "./v1.js";

type Open = (request: WatchRecoveryRequest, deadline: number | undefined) => ClientReadableStream<WatchRecoveryResponse>;

/**
 * An async iterable over events that goes on after its cursor when a connection is lost.
 *
 * It ends only by leaving its loop, by its signal or timeout, or by an error. `missed` is an event like any other;
 * bookmarks only move the cursor.
 */
export class Watch implements AsyncIterable<RecoveryEvent> {
  /** Place in the feed after the last event: give it to `Client.watch` as `after` to go on from there. */
  cursor: string;
  private call: ClientReadableStream<WatchRecoveryResponse> | undefined;
  private closed = false;

  constructor(
    private readonly open: Open,
    private readonly retry: Retry,
    private readonly request: WatchRecoveryRequest,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.cursor = request.start.case === "after" ? request.start.value : "";
  }

  /** Ends the iteration. */
  close(): void {
    this.closed = true;
    this.call?.cancel();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<RecoveryEvent, void> {
    const abort = (): void => this.close();
    this.signal?.addEventListener("abort", abort);
    try {
      while (!this.closed) {
        try {
          this.call = this.open(this.request, this.retry.deadline);
          for await (const { event } of this.call as AsyncIterable<WatchRecoveryResponse>) {
            if (!event) continue;
            this.retry.progressed();
            this.cursor = event.cursor;
            this.request.start = { case: "after", value: event.cursor };
            if (event.body.case && event.body.case !== "bookmark") yield event;
          }
          throw lost("the feed ended");
        } catch (error) {
          this.signal?.throwIfAborted();
          if (!this.closed) await this.retry.wait(error instanceof StatusError ? error : fromRpc(error));
        }
      }
    } finally {
      this.signal?.removeEventListener("abort", abort);
      this.call?.cancel();
    }
  }
}
