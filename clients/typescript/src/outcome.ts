/** How an invocation ended, as a unary call and a stream both return it. */
import type {
  Attempt,
  Completed,
  Completion,
  Failure,
  InvokeWithRecoveryResponse,
  Message,
  ToolCallPart,
  ToolOutput,
  Usage,
} from "./v1.js";

interface Ended {
  text: string;
  toolCalls: readonly Pick<ToolCallPart, "id" | "name" | "argumentsJson">[];
  historyPatch: readonly Message[];
  historyReplaceTail: number;
  invocationId: string;
  target: string;
  attempts: readonly Attempt[];
  usage: Usage | undefined;
  around: Readonly<Record<string, unknown>>;
}

/** The invocation ended with an answer. */
export class Answer {
  readonly kind = "answer";
  readonly text: string;
  /** Tools that the model wants called; each may be acted on. */
  readonly toolCalls: Ended["toolCalls"];
  readonly historyPatch: readonly Message[];
  readonly historyReplaceTail: number;
  readonly invocationId: string;
  /** Id of the target that answered. */
  readonly target: string;
  readonly attempts: readonly Attempt[];
  /** Tokens of all attempts: what was spent. */
  readonly usage: Usage | undefined;
  /** What the provider says around its answer and no other field has: `service_tier`, `system_fingerprint`, …. */
  readonly around: Ended["around"];

  constructor(ended: Ended) {
    this.text = ended.text;
    this.toolCalls = ended.toolCalls;
    this.historyPatch = ended.historyPatch;
    this.historyReplaceTail = ended.historyReplaceTail;
    this.invocationId = ended.invocationId;
    this.target = ended.target;
    this.attempts = ended.attempts;
    this.usage = ended.usage;
    this.around = ended.around;
  }

  /** Brings the caller's history to what the model saw and said. Call it once. */
  applyTo(history: Message[]): void {
    history.splice(history.length - this.historyReplaceTail, this.historyReplaceTail, ...this.historyPatch);
  }
}

/** The invocation ended with a failure, or was cancelled. */
export class Failed {
  readonly kind = "failed";

  constructor(
    readonly failure: Failure,
    readonly invocationId: string,
    readonly historyPatch: readonly Message[] = [],
  ) {}

  /**
   * Appends the error of a tool to the caller's history, so that its model reads it. Call it once. Nothing is appended for
   * a call of a model.
   */
  applyTo(history: Message[]): void {
    history.push(...this.historyPatch);
  }
}

/** A tool returned a result. */
export class ToolResult {
  readonly kind = "result";

  constructor(
    /** All its texts, joined by line feeds. */
    readonly text: string,
    /** The result word for word: `content`, `structuredJson`, `mcpJson`, and what was done to get it. */
    readonly output: ToolOutput | undefined,
    readonly historyPatch: readonly Message[],
    readonly invocationId: string,
    /** Id of the target that returned it, `server/tool`. */
    readonly target: string,
    readonly attempts: readonly Attempt[],
  ) {}

  /** The result as data; `undefined` if the tool gave none. */
  get structured(): unknown {
    const json = this.output?.structuredJson;
    return json === undefined ? undefined : JSON.parse(json);
  }

  /** Appends the result to the caller's history, after its call if the caller named none. Call it once. */
  applyTo(history: Message[]): void {
    history.push(...this.historyPatch);
  }
}

export type Outcome = Answer | Failed;
export type ToolOutcome = ToolResult | Failed;

export function toolOutcome(response: InvokeWithRecoveryResponse): ToolOutcome {
  const { outcome, invocationId, historyPatch } = response;
  if (outcome.case === "failure") return new Failed(outcome.value, invocationId, historyPatch);
  const { text = "", toolOutput } = outcome.value ?? {};
  return new ToolResult(text, toolOutput, historyPatch, invocationId, response.finalTarget, response.attempts);
}

export function aroundOf(ended: Completion | Completed | undefined): Ended["around"] {
  return ended?.around ? (JSON.parse(new TextDecoder().decode(ended.around.data)) as Ended["around"]) : {};
}

export function fromResponse(response: InvokeWithRecoveryResponse): Outcome {
  const { outcome, invocationId } = response;
  if (outcome.case === "failure") return new Failed(outcome.value, invocationId, response.historyPatch);
  const parts = outcome.value?.message?.parts ?? [];
  return new Answer({
    text: outcome.value?.text ?? "",
    toolCalls: parts.flatMap(({ content }) => (content.case === "toolCall" ? [content.value] : [])),
    historyPatch: response.historyPatch,
    historyReplaceTail: response.historyReplaceTail,
    invocationId,
    target: response.finalTarget,
    attempts: response.attempts,
    usage: response.usage,
    around: aroundOf(outcome.value),
  });
}
