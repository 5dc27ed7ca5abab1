/** The connection to Relight, and how often a lost one is made again. */
import { setTimeout as sleep } from "node:timers/promises";
import { type DescMessage, type DescMethod, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import {
  type CallOptions,
  type ChannelOptions,
  Client as GrpcClient,
  type ClientReadableStream,
  credentials,
  Metadata,
  status as Code,
} from "@grpc/grpc-js";
import { StatusError } from "./errors.js";

/** Encrypts the connection. All are PEM; without `ca` the authorities that Node knows are trusted. */
export interface Tls {
  ca?: Buffer;
  certificate?: Buffer;
  key?: Buffer;
  /** The name in the server's certificate, where it differs from the address. */
  serverName?: string;
}

/** How often a lost connection, or a replica that is going away, is tried again without any progress between. */
export interface Reconnect {
  attempts?: number;
  /** The first wait, doubled up to `maxWaitMs`; each is spread by half of itself. */
  waitMs?: number;
  maxWaitMs?: number;
}

/** The attempts that are left to one call, and its deadline. */
export class Retry {
  readonly deadline: number | undefined;
  private failed = 0;

  constructor(
    private readonly reconnect: Reconnect,
    timeoutMs: number | undefined,
    private readonly signal: AbortSignal | undefined,
  ) {
    this.deadline = timeoutMs === undefined ? undefined : Date.now() + timeoutMs;
  }

  progressed(): void {
    this.failed = 0;
  }

  /** Waits before the next attempt, or throws `error` when there is none. */
  async wait(error: StatusError): Promise<void> {
    this.signal?.throwIfAborted();
    const { attempts = 12, waitMs = 100, maxWaitMs = 2000 } = this.reconnect;
    if (!error.transient || this.failed >= attempts) throw error;
    const backoff = Math.min(waitMs * 2 ** this.failed, maxWaitMs) * (0.5 + Math.random() / 2);
    const pause = Math.max(backoff, error.retryAfterMs);
    if (this.deadline !== undefined && Date.now() + pause >= this.deadline) {
      throw new StatusError(Code.DEADLINE_EXCEEDED, `no time is left to try again after: ${error.message}`);
    }
    this.failed += 1;
    await sleep(pause, undefined, { signal: this.signal }).catch(() => this.signal?.throwIfAborted());
  }
}

/** Calls the methods of the contract over one channel, which spreads calls over all addresses and repeats nothing. */
export class Connection {
  private readonly grpc: GrpcClient;
  private readonly metadata = new Metadata();

  constructor(target: string, tls: Tls | boolean, apiKey: string | undefined) {
    const settings = tls === true ? {} : tls || undefined;
    const options: ChannelOptions = {
      "grpc.service_config": JSON.stringify({ loadBalancingConfig: [{ round_robin: {} }] }),
      "grpc.enable_retries": 0,
      "grpc.max_receive_message_length": -1,
      "grpc.initial_reconnect_backoff_ms": 100,
      // All replicas may be replaced within the half minute for which names are not looked up again by default.
      "grpc.dns_min_time_between_resolutions_ms": 1000,
      "grpc.max_reconnect_backoff_ms": 2000,
      // Finds out about a peer that is gone without a word.
      "grpc.keepalive_time_ms": 20_000,
      "grpc.keepalive_timeout_ms": 10_000,
    };
    // A list of addresses is no valid authority.
    if (/^ipv[46]:/.test(target)) options["grpc.default_authority"] = "relight";
    if (settings?.serverName) options["grpc.ssl_target_name_override"] = settings.serverName;
    const secure = settings && credentials.createSsl(settings.ca, settings.key, settings.certificate);
    this.grpc = new GrpcClient(target, secure ?? credentials.createInsecure(), options);
    if (apiKey) this.metadata.set("authorization", `Bearer ${apiKey}`);
  }

  close(): void {
    this.grpc.close();
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
    deadline: number | undefined,
    signal?: AbortSignal,
  ): Promise<MessageShape<O>> {
    signal?.throwIfAborted();
    let abort = (): void => {};
    try {
      return await new Promise((resolve, reject) => {
        const call = this.grpc.makeUnaryRequest(
          path(method),
          (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
          (bytes: Buffer) => fromBinary(method.output, bytes),
          request,
          this.metadata,
          options(deadline),
          (error, response) => (error ? reject(error) : resolve(response as MessageShape<O>)),
        );
        abort = () => call.cancel();
        signal?.addEventListener("abort", abort);
      });
    } catch (error) {
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethod & { input: I; output: O },
    request: MessageShape<I>,
    deadline: number | undefined,
  ): ClientReadableStream<MessageShape<O>> {
    const call = this.grpc.makeServerStreamRequest(
      path(method),
      (message: MessageShape<I>) => Buffer.from(toBinary(method.input, message)),
      (bytes: Buffer) => fromBinary(method.output, bytes),
      request,
      this.metadata,
      options(deadline),
    );
    // Who iterates gets the error; a call that is left must not end the process with one.
    return call.on("error", () => {});
  }
}

function path(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

function options(deadline: number | undefined): CallOptions {
  return deadline === undefined ? {} : { deadline };
}
