// Runs the calls of the specification with this package: one call as JSON on each line in, what its caller held out.
import { createInterface } from "node:readline";
import { Client, FailureError, ProtocolError, StatusError, user, v1 } from "./dist/index.js";

const name = (enumeration, prefix, value) => `${prefix}_${enumeration[value]}`;

/** The role of each message, and what of it can be read. */
function shown(history) {
  const textOf = ({ content: { case: kind, value } }) => {
    if (kind === "toolCall") return value.name;
    if (kind === "toolResult") return value.content.map(({ content }) => content.value?.text ?? "").join("");
    return value?.text ?? "";
  };
  return history.map(({ role, parts }) => [name(v1.Role, "ROLE", role), parts.map(textOf).join("")]);
}

function endedWithAnswer(answer, prompt) {
  const history = [user(prompt)];
  answer.applyTo(history);
  return {
    ended: "answer",
    text: answer.text,
    target: answer.target,
    tool_calls: answer.toolCalls.map((call) => [call.id, call.name, call.argumentsJson]),
    history: shown(history),
    around: answer.around,
  };
}

function endedWithFailure(failure, thrown) {
  const failureClass = name(v1.FailureClass, "FAILURE_CLASS", failure.failureClass);
  return { ended: "failure", failure: [failureClass, failure.userMessage], thrown };
}

function ended(outcome, prompt) {
  return outcome.kind === "answer" ? endedWithAnswer(outcome, prompt) : endedWithFailure(outcome.failure, false);
}

async function callTool(client, call, fields) {
  const { name: tool, arguments: args, call_id: id, goal, meta } = call.tool;
  const wanted = id ? [{ id, name: tool, argumentsJson: JSON.stringify(args) }, undefined] : [tool, args];
  const options = { ...fields, goal, meta };
  const history = [];
  try {
    const result = await (call.return_failure ? client.tryCallTool(...wanted, options) : client.callTool(...wanted, options));
    result.applyTo(history);
    if (result.kind === "failed") return { ...endedWithFailure(result.failure, false), history: shown(history) };
    const { text, target, structured = null } = result;
    return { ended: "result", text, target, structured, history: shown(history) };
  } catch (error) {
    if (!(error instanceof FailureError)) throw error;
    error.applyTo(history);
    return { ...endedWithFailure(error.failure, true), history: shown(history) };
  }
}

async function read(stream, items, limit, cancel) {
  for await (const item of stream) {
    if (typeof item === "string") items.push(["text", item]);
    else items.push(item.kind === "text" ? ["text", item.text] : ["rewind", item.kept]);
    if (items.length === limit) break;
    cancel?.(items.length);
  }
}

async function stream(client, call, fields, held) {
  const items = (held.items = []);
  const canceller = new AbortController();
  const cancel = (count) => count === call.cancel_after && setImmediate(() => canceller.abort());
  const options = { ...fields, signal: canceller.signal, live: call.live ?? false, throwFailure: !call.return_failure };
  const answer = client.stream(call.prompt, options);
  if (call.detach) {
    const iterator = answer[Symbol.asyncIterator]();
    for (let count = 0; count < call.detach; count += 1) {
      const { value } = await iterator.next();
      items.push(["text", value.text]);
    }
    const resumed = client.resume(answer.detach(), options);
    await read(resumed, items);
    return ended(resumed.outcome, call.prompt);
  }
  await read(answer, items, call.take, cancel);
  return call.take ? { ended: "left" } : ended(answer.outcome, call.prompt);
}

async function watch(client, call, held) {
  held.events = [];
  const feed = client.watch({ after: call.after, fromStart: call.from_start, timeoutMs: call.timeout_ms });
  for await (const event of feed) {
    const missed = event.body.case === "missed" ? `missed ${event.body.value.count}` : event.displayText;
    held.events.push([event.cursor, missed]);
    held.cursor = feed.cursor;
    if (held.events.length === call.take) break;
  }
  return { ended: "left" };
}

async function invoke(client, call, fields) {
  if (call.return_failure) return ended(await client.tryInvoke(call.prompt, fields), call.prompt);
  return ended(await client.invoke(call.prompt, fields), call.prompt);
}

/** Calls until so many different answers came. */
async function distinct(client, call) {
  const texts = new Set();
  for (let count = 0; count < call.most && texts.size < call.distinct; count += 1) {
    texts.add((await client.invoke(call.prompt)).text);
  }
  return { texts: [...texts] };
}

async function run({ target, call }) {
  const tls = !!call.tls && { ca: Buffer.from(call.tls) };
  const client = new Client(target, { apiKey: call.api_key, tls, reconnect: { attempts: call.attempts ?? 12, waitMs: 50 } });
  const fields = { route: call.route, requestId: call.request_id, timeoutMs: call.timeout_ms };
  const held = {};
  try {
    if (call.method === "stream") Object.assign(held, await stream(client, call, fields, held));
    else if (call.method === "watch") Object.assign(held, await watch(client, call, held));
    else if (call.method === "call_tool") Object.assign(held, await callTool(client, call, fields));
    else if (call.method === "distinct") Object.assign(held, await distinct(client, call));
    else Object.assign(held, await invoke(client, call, fields));
  } catch (error) {
    if (error instanceof FailureError) Object.assign(held, endedWithFailure(error.failure, true));
    else if (error instanceof StatusError) Object.assign(held, { ended: "status", status: [error.codeName, error.reason] });
    else if (error.name === "AbortError") held.ended = "cancelled";
    else if (error instanceof ProtocolError) held.ended = "protocol";
    else throw error;
  } finally {
    await client.close();
  }
  return held;
}

for await (const line of createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line))));
}
