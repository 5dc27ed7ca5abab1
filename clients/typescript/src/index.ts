/**
 * Client of Relight: calls of models and tools that are retried, failed over and resumed.
 *
 * ```ts
 * const client = new Client("127.0.0.1:50051");
 * console.log((await client.invoke("Why is the sky blue?")).text);
 * ```
 */
export {
  Client,
  type ClientOptions,
  type InvokeOptions,
  type Prompt,
  type StreamOptions,
  system,
  type Tool,
  type ToolOptions,
  user,
} from "./client.js";
export type { Reconnect, Tls } from "./connection.js";
export { FailureError, ProtocolError, RelightError, StatusError } from "./errors.js";
export { Answer, Failed, type Outcome, type ToolOutcome, ToolResult } from "./outcome.js";
export { type Change, type ResumePoint, Stream } from "./stream.js";
export { Watch } from "./watch.js";
export * as v1 from "./v1.js";
