#!/usr/bin/env node
// An MCP server on the official TypeScript SDK that misbehaves on demand; see README.md beside it.

import { randomUUID } from "node:crypto";
import { appendFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";
import {
  CallToolRequestSchema,
  ErrorCode,
  ListToolsRequestSchema,
  McpError,
  isInitializeRequest,
} from "@modelcontextprotocol/sdk/types.js";

const notes = process.env.NOTES ?? "";
const maxDays = Number(process.env.MAX_DAYS ?? 31);
const extraTools = Number(process.env.TOOLS ?? 0);
const state = { renamed: "RENAMED" in process.env, broken: "BROKEN" in process.env, keys: new Set() };
const text = { type: "string" };
const date = { type: "string", format: "date" };
const dayMs = 24 * 60 * 60 * 1000;
const firstDay = Date.parse("2024-01-01");
const forever = () => new Promise(() => setInterval(() => {}, dayMs));

function tool(name, description, properties, required = [], annotations = undefined) {
  const inputSchema = { type: "object", properties, required, additionalProperties: false };
  return { name, description, inputSchema, annotations };
}

function tools() {
  const count = { [state.renamed ? "max_results" : "limit"]: { type: "integer", minimum: 1 } };
  const readOnly = { readOnlyHint: true };
  const adds = { readOnlyHint: false, destructiveHint: false, idempotentHint: false };
  const then = { enum: ["respond", "crash", "hang"] };
  const between = "Lists the activities between two days, both included.";
  const listed = [
    tool("get_activities", between, { after: date, before: date, limit: { type: "integer" } }, ["after", "before"], readOnly),
    tool("get_activity", "Returns one activity by its id.", { id: text }, ["id"], readOnly),
    tool("get_activity_on", "Returns the activity of a day.", { id: text }, ["id"], readOnly),
    tool("list_activities", between, { from: date, to: date }, ["from", "to"], readOnly),
    tool("get_private_activities", "Lists the private activities of an athlete.", { athlete: text }, ["athlete"], readOnly),
    tool("search", "Finds activities by words.", { query: text, ...count }, ["query"], readOnly),
    tool("add_comment", "Adds a comment.", { text, key: text, then }, ["text"], adds),
    tool("misbehave", "Does what no server should.", { how: text }, ["how"]),
    tool("control", "Changes this server.", { action: text }, ["action"]),
  ];
  for (let number = 0; number < extraTools; number += 1) listed.push(tool(`extra_${number}`, "One of many.", {}));
  return listed;
}

function activities(first, last) {
  const [from, to] = [Date.parse(first), Date.parse(last)];
  const found = [];
  // One a week, on the weekday of the first day.
  const weeks = Math.ceil(Math.max(from - firstDay, 0) / (7 * dayMs));
  for (let day = firstDay + weeks * 7 * dayMs; day <= to; day += 7 * dayMs) {
    found.push({ id: `a-${Math.round((day - firstDay) / dayMs)}`, day: new Date(day).toISOString().slice(0, 10) });
  }
  return [(to - from) / dayMs, found];
}

const result = (structuredContent) => ({
  content: [{ type: "text", text: JSON.stringify(structuredContent) }],
  structuredContent,
});
const failure = (words) => ({ content: [{ type: "text", text: words }], isError: true });

async function listBetween(first, last, limit) {
  const [days, found] = activities(first, last);
  if (days > maxDays) await forever();
  const some = found.slice(0, limit ?? found.length);
  return result({ activities: some, total: some.length });
}

async function misbehave(how) {
  const endless = (piece) => {
    for (let left = piece; ; left = left === "" ? piece : left) {
      try {
        left = left.slice(writeSync(1, left));
      } catch (error) {
        // Its reader is behind.
        if (error.code !== "EAGAIN") throw error;
      }
    }
  };
  switch (how) {
    case "crash":
      writeSync(2, "Error: the server crashes now\n");
      process.exit(70);
      break;
    case "not_json":
      writeSync(1, "Error: something that is no message\n");
      break;
    case "endless_line":
      endless("x".repeat(4096));
      break;
    case "flood":
      endless('{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n');
      break;
    default:
  }
  return forever();
}

function search(given) {
  if (state.broken) return failure("TypeError: Cannot read properties of undefined (reading 'cursor')");
  const count = state.renamed ? "max_results" : "limit";
  const unknown = Object.keys(given).filter((argument) => !["query", count].includes(argument));
  if (unknown.length > 0) {
    throw new McpError(ErrorCode.InvalidParams, `Invalid arguments for tool search: unrecognized key '${unknown[0]}'`);
  }
  const known = activities("2024-01-01", "2024-12-31")[1];
  return result({ activities: known.slice(0, given[count] ?? 10), query: given.query });
}

async function addComment({ text: words, key, then }) {
  if (key === undefined || !state.keys.has(key)) {
    appendFileSync(notes, `comment ${words}\n`);
    state.keys.add(key);
  }
  if (then === "crash") process.exit(70);
  if (then === "hang") await forever();
  return result({ added: words });
}

function newServer() {
  const server = new Server({ name: "relight-test-tools", version: "1" }, { capabilities: { tools: { listChanged: true } } });
  server.setRequestHandler(ListToolsRequestSchema, async () => ({ tools: tools() }));
  server.setRequestHandler(CallToolRequestSchema, async ({ params }) => {
    const given = params.arguments ?? {};
    switch (params.name) {
      case "get_activities":
        return listBetween(given.after, given.before, given.limit);
      case "list_activities":
        return listBetween(given.from, given.to);
      case "get_activity": {
        const found = activities("2024-01-01", "2030-12-31")[1].find((activity) => activity.id === given.id);
        return found === undefined ? failure(`Activity ${given.id} not found`) : result(found);
      }
      case "get_activity_on": {
        const found = activities("2024-01-01", "2030-12-31")[1].find((activity) => activity.day === given.id);
        return found === undefined ? failure(`Activity of ${given.id} not found`) : result(found);
      }
      case "get_private_activities":
        return failure(`403 Forbidden: the activities of ${given.athlete} are private`);
      case "search":
        return search(given);
      case "add_comment":
        return addComment(given);
      case "misbehave":
        return misbehave(given.how);
      case "control":
        if (["rename", "restore"].includes(given.action)) {
          state.renamed = given.action === "rename";
          await server.sendToolListChanged();
        } else {
          state.broken = given.action === "break";
        }
        return result({ done: given.action });
      default:
        return params.name.startsWith("extra_") ? result({ tool: params.name }) : failure(`Unknown tool: ${params.name}`);
    }
  });
  return server;
}

function overHttp() {
  const sessions = new Map();
  const http = createServer(async (request, response) => {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks)) : undefined;
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (transport === undefined && isInitializeRequest(body)) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await newServer().connect(transport);
    }
    if (transport === undefined) {
      response.writeHead(404).end("no such session");
    } else {
      await transport.handleRequest(request, response, body);
    }
  });
  http.listen(0, "127.0.0.1", () => process.stderr.write(`listening on ${http.address().port}\n`));
}

if (process.argv.includes("--http")) {
  overHttp();
} else {
  await newServer().connect(new StdioServerTransport());
}
