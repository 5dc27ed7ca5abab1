/**
 * The AI SDK's language model over Relight's gRPC API.
 *
 * ```ts
 * import { generateText } from "ai";
 * import { relight } from "@relight/client/ai-sdk";
 *
 * const { text } = await generateText({ model: relight("default"), prompt: "Why is the sky blue?" });
 * ```
 *
 * Streams yield text that is final: the AI SDK takes nothing back. `providerMetadata.relight` has the invocation, the target that
 * answered, the number of attempts, and what its provider said around the answer. A failure for good is thrown as `FailureError`, which the AI SDK does not retry.
 */
import type {
  JSONObject,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3FinishReason,
  LanguageModelV3Message,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolResultOutput,
  LanguageModelV3Usage,
} from "@ai-sdk/provider";
import { create, fromBinary, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Client, type ClientOptions, type InvokeOptions, system } from "./client.js";
import type { Answer } from "./outcome.js";
import { type Message, MessageSchema, type ModelCall, ModelCallSchema, PartSchema, ResponseFormatKind, Role, ToolChoiceMode } from "./v1.js";

export interface RelightModelOptions extends ClientOptions {
  /** A gRPC target: `host:port`, or `dns:///name:port` for all replicas behind a name. Default: `127.0.0.1:50051`. */
  target?: string;
  operation?: string;
}

/** A route of Relight as a language model; `""` is the default route. */
export function relight(route = "", { target, operation, ...options }: RelightModelOptions = {}): LanguageModelV3 {
  const client = new Client(target, options);
  const named = (call: LanguageModelV3CallOptions): InvokeOptions => ({ route, operation, signal: call.abortSignal });
  return {
    specificationVersion: "v3",
    provider: "relight",
    modelId: route || "relight",
    supportedUrls: {},
    async doGenerate(call) {
      const answer = await client.invoke(modelCall(call), named(call));
      return { content: contentOf(answer), ...ended(answer), warnings: [] };
    },
    async doStream(call) {
      const texts = client.stream(modelCall(call), named(call));
      async function* parts(): AsyncGenerator<LanguageModelV3StreamPart> {
        yield { type: "stream-start", warnings: [] };
        const id = "text";
        let begun = false;
        for await (const delta of texts) {
          if (!begun) yield { type: "text-start", id };
          begun = true;
          yield { type: "text-delta", id, delta };
        }
        const answer = texts.outcome as Answer;
        if (begun) yield { type: "text-end", id, providerMetadata: metadata(answer) };
        yield* contentOf(answer).filter((part) => part.type === "tool-call");
        yield { type: "finish", ...ended(answer) };
      }
      const coming = parts();
      const stream = new ReadableStream<LanguageModelV3StreamPart>({
        async pull(controller) {
          const { done, value } = await coming.next();
          if (done) controller.close();
          else controller.enqueue(value);
        },
        cancel: () => texts.close(),
      });
      return { stream };
    },
  };
}

function contentOf(answer: Answer): LanguageModelV3Content[] {
  const providerMetadata = metadata(answer);
  const text = answer.text ? [{ type: "text" as const, text: answer.text, providerMetadata }] : [];
  const calls = answer.toolCalls.map(({ id, name, argumentsJson }) => {
    return { type: "tool-call" as const, toolCallId: id, toolName: name, input: argumentsJson, providerMetadata };
  });
  return [...text, ...calls];
}

/** What recovery did, and the message as it came, so that nothing that its provider needs back is lost. */
function metadata(answer: Answer) {
  const { invocationId, target } = answer;
  const last = answer.historyPatch.at(-1);
  const message = last ? Buffer.from(toBinary(MessageSchema, last)).toString("base64") : "";
  const around = answer.around as JSONObject;
  return { relight: { invocationId, target, attempts: answer.attempts.length, message, around } };
}

function ended(answer: Answer) {
  const usage = answer.usage;
  const number = (tokens: number | bigint | undefined) => (tokens === undefined ? undefined : Number(tokens));
  const counted: LanguageModelV3Usage = {
    inputTokens: {
      total: number(usage?.inputTokens),
      noCache: undefined,
      cacheRead: number(usage?.cachedInputTokens),
      cacheWrite: number(usage?.cacheWriteTokens),
    },
    outputTokens: { total: number(usage?.outputTokens), text: undefined, reasoning: number(usage?.reasoningTokens) },
  };
  const unified = answer.toolCalls.length ? "tool-calls" : "stop";
  const finishReason: LanguageModelV3FinishReason = { unified, raw: undefined };
  return { usage: counted, finishReason, providerMetadata: metadata(answer) };
}

function modelCall(call: LanguageModelV3CallOptions): ModelCall {
  const { responseFormat: format, toolChoice } = call;
  const modes = { auto: ToolChoiceMode.AUTO, none: ToolChoiceMode.NONE, required: ToolChoiceMode.REQUIRED, tool: ToolChoiceMode.NAMED };
  const tools = (call.tools ?? []).map((tool) => {
    if (tool.type !== "function") throw new Error(`the tool ${tool.name} of a provider is not carried; use the HTTP front`);
    return { name: tool.name, description: tool.description ?? "", inputSchemaJson: JSON.stringify(tool.inputSchema) };
  });
  return create(ModelCallSchema, {
    messages: call.prompt.flatMap(messages),
    tools,
    toolChoice: toolChoice && { mode: modes[toolChoice.type], name: toolChoice.type === "tool" ? toolChoice.toolName : "" },
    sampling: { temperature: call.temperature, topP: call.topP, topK: call.topK, seed: call.seed === undefined ? undefined : BigInt(call.seed) },
    maxOutputTokens: call.maxOutputTokens,
    stop: call.stopSequences ?? [],
    responseFormat: format?.type === "json" ? jsonFormat(format) : undefined,
  });
}

function jsonFormat({ schema, name }: { schema?: unknown; name?: string }) {
  if (!schema) return { kind: ResponseFormatKind.JSON_OBJECT };
  return { kind: ResponseFormatKind.JSON_SCHEMA, name: name ?? "answer", schemaJson: JSON.stringify(schema) };
}

function messages(message: LanguageModelV3Message): Message[] {
  if (message.role === "system") return [system(message.content)];
  if (message.role === "tool") {
    return message.content.flatMap((part) => {
      if (part.type !== "tool-result") return [];
      const { text, isError } = resultOf(part.output);
      const value = { callId: part.toolCallId, name: part.toolName, isError, content: [{ content: { case: "text" as const, value: { text } } }] };
      return [create(MessageSchema, { role: Role.TOOL, parts: [{ content: { case: "toolResult", value } }] })];
    });
  }
  if (message.role === "assistant") {
    const kept = message.content.map((part) => part.providerOptions?.relight?.message).find((kept) => typeof kept === "string" && kept);
    if (kept) return [fromBinary(MessageSchema, Buffer.from(kept as string, "base64"))];
  }
  const parts: MessageInitShape<typeof PartSchema>[] = [];
  for (const part of message.content) {
    if (part.type === "text") {
      parts.push({ content: { case: "text", value: { text: part.text } } });
    } else if (part.type === "tool-call") {
      const value = { id: part.toolCallId, name: part.toolName, argumentsJson: JSON.stringify(part.input) };
      parts.push({ content: { case: "toolCall", value } });
    } else if (part.type !== "reasoning") {
      throw new Error(`content of type ${part.type} is not carried; use the HTTP front`);
    }
  }
  return [create(MessageSchema, { role: message.role === "user" ? Role.USER : Role.ASSISTANT, parts })];
}

function resultOf(output: LanguageModelV3ToolResultOutput): { text: string; isError: boolean } {
  if (output.type === "text" || output.type === "error-text") return { text: output.value, isError: output.type === "error-text" };
  if (output.type === "execution-denied") return { text: output.reason ?? "execution was denied", isError: true };
  return { text: JSON.stringify(output.value), isError: output.type === "error-json" };
}
