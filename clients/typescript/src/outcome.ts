/** How an invocation ended, as a unary call and a stream both return it. */
import type { Attempt, Failure, InvokeWithRecoveryResponse, Message, ToolCallPart, Usage } from "./v1.js";

interface Ended {
  text: string;
  toolCalls: readonly Pick<ToolCallPart, "id" | "name" | "argumentsJson">[];
  historyPatch: readonly Message[];
  historyReplaceTail: number;
  invocationId: string;
  target: string;
  attempts: readonly Attempt[];
  usage: Usage | undefined;
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

  constructor(ended: Ended) {
    this.text = ended.text;
    this.toolCalls = ended.toolCalls;
    this.historyPatch = ended.historyPatch;
    this.historyReplaceTail = ended.historyReplaceTail;
    this.invocationId = ended.invocationId;
    this.target = ended.target;
    this.attempts = ended.attempts;
    this.usage = ended.usage;
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
  ) {}
}

export type Outcome = Answer | Failed;

export function fromResponse(response: InvokeWithRecoveryResponse): Outcome {
  const { outcome, invocationId } = response;
  if (outcome.case === "failure") return new Failed(outcome.value, invocationId);
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
  });
}
