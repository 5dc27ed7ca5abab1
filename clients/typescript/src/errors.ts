/** What can go wrong with a call: Relight itself, a model's failure, or a stream that does not fit together. */
import { BinaryReader, WireType } from "@bufbuild/protobuf/wire";
import { type ServiceError, status as Code } from "@grpc/grpc-js";
import type { Failed } from "./outcome.js";
import { type Failure, FailureClass, type Message } from "./v1.js";

// A status with one of these codes may be the transport's and not Relight's. Relight marks its own that must not be
// repeated with a negative pushback.
const TRANSIENT: ReadonlySet<Code> = new Set([
  Code.UNAVAILABLE,
  Code.RESOURCE_EXHAUSTED,
  Code.INTERNAL,
  Code.UNKNOWN,
  Code.CANCELLED,
]);

/** Base of all errors that this package throws, but for an `AbortSignal`'s own reason. */
export class RelightError extends Error {
  constructor(message: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** Relight refused the call, or could not be reached. Speaks of Relight, never of a model. */
export class StatusError extends RelightError {
  /** Name of the gRPC status, such as `NOT_FOUND`. */
  readonly codeName: string;

  constructor(
    readonly code: Code,
    readonly details: string,
    /** The `reason` of google.rpc.ErrorInfo (`ROUTE_NOT_FOUND`); empty where Relight could not be reached. */
    readonly reason = "",
    /** The least wait before it makes sense to call again. */
    readonly retryAfterMs = 0,
    /** Whether the same call may succeed later. It was repeated already, as often as the client allows. */
    readonly transient = false,
  ) {
    super(`${Code[code]}${reason && ` (${reason})`}: ${details}`);
    this.codeName = Code[code] ?? String(code);
  }
}

/** The invocation ended with a failure, which Relight judged; `failure` holds all of it. */
export class FailureError extends RelightError {
  readonly failure: Failure;

  constructor(readonly failed: Failed) {
    const { failure } = failed;
    super(`${FailureClass[failure.failureClass]?.toLowerCase()}: ${failure.message || failure.userMessage}`);
    this.failure = failure;
  }

  /** Appends the error of a tool to the caller's history, so that its model reads it. Call it once. */
  applyTo(history: Message[]): void {
    this.failed.applyTo(history);
  }
}

/** The events of a stream do not fit together, also after they were fetched again. */
export class ProtocolError extends RelightError {}

/** Reads what a status says about itself. */
export function fromRpc(error: unknown): StatusError {
  if (!isServiceError(error)) throw error;
  const never = String(error.metadata?.get("grpc-retry-pushback-ms")[0] ?? "").startsWith("-");
  const details = error.metadata?.get("grpc-status-details-bin")[0];
  const { reason, retryAfterMs } = readDetails(details instanceof Uint8Array ? details : new Uint8Array());
  return new StatusError(error.code, error.details, reason, retryAfterMs, TRANSIENT.has(error.code) && !never);
}

export function lost(message: string): StatusError {
  return new StatusError(Code.UNAVAILABLE, message, "", 0, true);
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && typeof (error as Partial<ServiceError>).code === "number";
}

/** Reads `google.rpc.Status`, whose definition is not part of the contract's files. */
function readDetails(status: Uint8Array): { reason: string; retryAfterMs: number } {
  const found = { reason: "", retryAfterMs: 0 };
  try {
    for (const [, detail] of fields(status).filter(([number]) => number === 3)) {
      const any = new Map(fields(detail as Uint8Array));
      const type = text(any.get(1));
      const body = new Map(fields((any.get(2) ?? new Uint8Array()) as Uint8Array));
      if (type.endsWith("/google.rpc.ErrorInfo")) found.reason = text(body.get(1));
      if (type.endsWith("/google.rpc.RetryInfo")) {
        const delay = new Map(fields((body.get(1) ?? new Uint8Array()) as Uint8Array));
        found.retryAfterMs = Number(delay.get(1) ?? 0) * 1000 + Number(delay.get(2) ?? 0) / 1e6;
      }
    }
  } catch {
    // A proxy's own details; the message says it all.
  }
  return found;
}

function fields(bytes: Uint8Array): [number, Uint8Array | bigint][] {
  const reader = new BinaryReader(bytes);
  const found: [number, Uint8Array | bigint][] = [];
  while (reader.pos < reader.len) {
    const [number, wire] = reader.tag();
    if (wire === WireType.LengthDelimited) found.push([number, reader.bytes()]);
    else if (wire === WireType.Varint) found.push([number, BigInt(reader.uint64())]);
    else reader.skip(wire);
  }
  return found;
}

function text(bytes: Uint8Array | bigint | undefined): string {
  return bytes instanceof Uint8Array ? Buffer.from(bytes).toString() : "";
}
