/** The client: invoke, call tools, stream, resume and watch. */
import { randomUUID } from "node:crypto";
import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Connection, type Reconnect, Retry, type Tls } from "./connection.js";
import { FailureError, fromRpc } from "./errors.js";
import { type Answer, fromResponse, type Outcome, type ToolOutcome, toolOutcome, type ToolResult } from "./outcome.js";
import { type Calls, type Change, finalText, Reader, type ResumePoint, Stream } from "./stream.js";
import {
  AnswerView,
  CancelInvocationRequestSchema,
  type Invocation,
  InvocationSchema,
  InvokeWithRecoveryRequestSchema,
  type InvokeWithRecoveryResponse,
  type Message,
  MessageSchema,
  type ModelCall,
  ModelCallSchema,
  type OverridesSchema,
  RecoveryService,
  type RecoveryEventFilterSchema,
  RewindMode,
  Role,
  type SideEffectsSchema,
  type StreamWithRecoveryRequest,
  StreamWithRecoveryRequestSchema,
  type ToolCallPart,
  WatchRecoveryRequestSchema,
} from "./v1.js";
import { Watch } from "./watch.js";

const CANCEL_TIMEOUT_MS = 5000;

export interface ClientOptions {
  apiKey?: string;
  tls?: Tls | boolean;
  /** Time for each call that names none. */
  timeoutMs?: number;
  reconnect?: Reconnect;
}

/** What a call may name beside its prompt; the fields of `relight.v1.Invocation`, and how the caller waits. */
export interface InvokeOptions {
  route?: string;
  operation?: string;
  threadId?: string;
  labels?: Record<string, string>;
  overrides?: MessageInitShape<typeof OverridesSchema>;
  /** Made where it is not given. */
  requestId?: string;
  timeoutMs?: number;
  signal?: AbortSignal;
}

/** What a call of a tool may name beside its arguments. */
export interface ToolOptions extends InvokeOptions {
  /** What the call is for, in a few words. */
  goal?: string;
  /** Id of the call in the caller's conversation. */
  callId?: string;
  /** What an MCP server gets as `_meta` of the request. */
  meta?: Record<string, unknown>;
  sideEffects?: MessageInitShape<typeof SideEffectsSchema>;
}

/** A tool's name (`server/tool` if several servers have it), or a call that a model wants. */
export type Tool = string | Pick<ToolCallPart, "id" | "name" | "argumentsJson">;

export interface StreamOptions extends InvokeOptions {
  /** Text as it comes, and a rewind where it is taken back, in place of text that is final. */
  live?: boolean;
  /** Whether the invocation outlives a lost connection. Default: true. */
  resumable?: boolean;
  /** Whether a failure is thrown at the end. Default: true; `Stream.outcome` has it either way. */
  throwFailure?: boolean;
}

export type Prompt = string | readonly Message[] | ModelCall;

/**
 * Calls Relight; close it at the end.
 *
 * `target` is a gRPC target: `host:port`, or `dns:///relight-headless:50051` for all replicas behind a name.
 */
export class Client {
  /** For every other RPC: `client.connection.unary(RecoveryService.method.getThread, …)`. */
  readonly connection: Connection;
  private readonly cancelling = new Set<Promise<void>>();

  constructor(
    target = "127.0.0.1:50051",
    private readonly options: ClientOptions = {},
  ) {
    this.connection = new Connection(target, options.tls ?? false, options.apiKey);
  }

  async close(): Promise<void> {
    await Promise.all(this.cancelling);
    this.connection.close();
  }

  /** Invokes a model and returns its answer; throws `FailureError` where the invocation failed for good. */
  async invoke(prompt: Prompt, options: InvokeOptions = {}): Promise<Answer> {
    const outcome = await this.tryInvoke(prompt, options);
    if (outcome.kind === "failed") throw new FailureError(outcome);
    return outcome;
  }

  /** The same, with a failure returned as `Failed`. */
  async tryInvoke(prompt: Prompt, options: InvokeOptions = {}): Promise<Outcome> {
    const asked = invocation(prompt, options);
    // However long the answer is, its turn in the history is whole.
    asked.answerView = AnswerView.REPEATED;
    return fromResponse(await this.unary(asked, options));
  }

  /**
   * Calls a tool of a tool server and returns its result; throws `FailureError` if it failed for good.
   *
   * A call that a model wants brings its arguments and its id: `(await client.callTool(call)).applyTo(history)`.
   */
  async callTool(tool: Tool, args: object | string = "", options: ToolOptions = {}): Promise<ToolResult> {
    const outcome = await this.tryCallTool(tool, args, options);
    if (outcome.kind === "failed") throw new FailureError(outcome);
    return outcome;
  }

  /** The same, with a failure returned as `Failed`. */
  async tryCallTool(tool: Tool, args: object | string = "", options: ToolOptions = {}): Promise<ToolOutcome> {
    return toolOutcome(await this.unary(toolInvocation(tool, args, options), options));
  }

  private async unary(invocation: Invocation, options: InvokeOptions): Promise<InvokeWithRecoveryResponse> {
    const request = create(InvokeWithRecoveryRequestSchema, { invocation });
    const retry = this.retry(options);
    for (;;) {
      try {
        const method = RecoveryService.method.invokeWithRecovery;
        return await this.connection.unary(method, request, retry.deadline, options.signal);
      } catch (error) {
        options.signal?.throwIfAborted();
        // The same request id: it joins what still runs, or gets the outcome once more.
        await retry.wait(fromRpc(error));
      }
    }
  }

  /** Streams an answer: text that is final, or, with `live`, text as it comes and where it is taken back. */
  stream(prompt: Prompt, options: StreamOptions & { live: true }): Stream<Change>;
  stream(prompt: Prompt, options?: StreamOptions & { live?: false }): Stream<string>;
  stream(prompt: Prompt, options: StreamOptions = {}): Stream<string> | Stream<Change> {
    const value = invocation(prompt, options);
    value.answerView = AnswerView.REPEATED;
    const overrides = (value.overrides ??= create(InvocationSchema, { overrides: {} }).overrides!);
    if (!options.live) overrides.rewindMode = RewindMode.ATOMIC;
    else if (overrides.rewindMode === RewindMode.UNSPECIFIED) overrides.rewindMode = RewindMode.REWIND;
    if (options.resumable ?? true) overrides.resumable ??= create(InvocationSchema, { overrides: { resumable: {} } }).overrides!.resumable;
    return this.read(create(StreamWithRecoveryRequestSchema, { start: { case: "invocation", value } }), options);
  }

  /** Streams the whole answer of an earlier stream that was detached, here or in another process. */
  resume(point: ResumePoint, options: StreamOptions & { live: true }): Stream<Change>;
  resume(point: ResumePoint, options?: StreamOptions & { live?: false }): Stream<string>;
  resume({ token, requestId }: ResumePoint, options: StreamOptions = {}): Stream<string> | Stream<Change> {
    const named = requestId ? ({ case: "requestId", value: requestId } as const) : ({ case: "token", value: token } as const);
    const start = { case: "resume", value: { invocation: named, answerView: AnswerView.REPEATED } } as const;
    return this.read(create(StreamWithRecoveryRequestSchema, { start }), options);
  }

  /** Iterates over recovery events: what happens from now on, or after a cursor, or all that is kept. */
  watch(
    options: {
      filter?: MessageInitShape<typeof RecoveryEventFilterSchema>;
      after?: string;
      fromStart?: boolean;
      timeoutMs?: number;
      signal?: AbortSignal;
    } = {},
  ): Watch {
    const { filter, after, fromStart, timeoutMs, signal } = options;
    const start = after
      ? ({ case: "after", value: after } as const)
      : ({ case: fromStart ? "fromStart" : "live", value: true } as const);
    const open = (request: MessageInitShape<typeof WatchRecoveryRequestSchema>, deadline: number | undefined) =>
      this.connection.stream(RecoveryService.method.watchRecovery, create(WatchRecoveryRequestSchema, request), deadline);
    const retry = new Retry(this.options.reconnect ?? {}, timeoutMs, signal);
    return new Watch(open, retry, create(WatchRecoveryRequestSchema, { filter, start }), signal);
  }

  private read(request: StreamWithRecoveryRequest, options: StreamOptions): Stream<string> | Stream<Change> {
    const calls: Calls = {
      open: (wanted, deadline) => this.connection.stream(RecoveryService.method.streamWithRecovery, wanted, deadline),
      cancel: (invocationId, requestId) => this.cancel(invocationId, requestId),
    };
    const reader = new Reader(calls, this.retry(options), request, options.signal);
    const throwFailure = options.throwFailure ?? true;
    if (options.live) return new Stream(reader, reader.changes(), throwFailure);
    return new Stream(reader, finalText(reader), throwFailure);
  }

  private retry({ timeoutMs = this.options.timeoutMs, signal }: InvokeOptions): Retry {
    return new Retry(this.options.reconnect ?? {}, timeoutMs, signal);
  }

  /** Cancels what nobody waits for any more. What cannot be reached ends by its own deadline. */
  private async cancel(invocationId: string, requestId: string): Promise<void> {
    if (!invocationId && !requestId) return;
    const named = invocationId ? { case: "invocationId", value: invocationId } : { case: "requestId", value: requestId };
    const request = create(CancelInvocationRequestSchema, {
      invocation: named as { case: "invocationId" | "requestId"; value: string },
      reason: "the caller left its stream",
    });
    const method = RecoveryService.method.cancelInvocation;
    const call = this.connection.unary(method, request, Date.now() + CANCEL_TIMEOUT_MS).then(
      () => {},
      () => {},
    );
    this.cancelling.add(call);
    await call;
    this.cancelling.delete(call);
  }
}

function invocation(prompt: Prompt, options: InvokeOptions): Invocation {
  const value = isModelCall(prompt)
    ? prompt
    : create(ModelCallSchema, { messages: typeof prompt === "string" ? [user(prompt)] : [...prompt] });
  return create(InvocationSchema, { ...named(options), call: { case: "model", value } });
}

function toolInvocation(tool: Tool, args: object | string, options: ToolOptions): Invocation {
  const wanted = typeof tool === "string" ? { id: "", name: tool, argumentsJson: "" } : tool;
  const written = typeof args === "string" ? args : JSON.stringify(args);
  const value = {
    name: wanted.name,
    argumentsJson: written || wanted.argumentsJson,
    callId: options.callId ?? wanted.id,
    goal: options.goal,
    metaJson: options.meta && JSON.stringify(options.meta),
    sideEffects: options.sideEffects,
  };
  return create(InvocationSchema, { ...named(options), call: { case: "tool", value } });
}

function named({ route, operation, threadId, labels, overrides, requestId }: InvokeOptions) {
  return { route, operation, threadId, labels, overrides, requestId: requestId ?? randomUUID() };
}

function isModelCall(prompt: Prompt): prompt is ModelCall {
  return typeof prompt === "object" && !Array.isArray(prompt);
}

/** A message of the user, or of the agent in its place. */
export function user(text: string): Message {
  return message(Role.USER, text);
}

/** The operator's instructions. */
export function system(text: string): Message {
  return message(Role.SYSTEM, text);
}

function message(role: Role, text: string): Message {
  return create(MessageSchema, { role, parts: [{ content: { case: "text", value: { text } } }] });
}
