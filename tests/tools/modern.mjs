#!/usr/bin/env node
// An MCP server of one tool on the official TypeScript SDK of 2026-07-28: modern.mjs stdio, or modern.mjs http and modern.mjs strict,
// which print `listening on PORT` to their standard error. The last one speaks 2026-07-28 alone, the others earlier revisions, too.
import { createServer } from "node:http";
import { toNodeHandler } from "@modelcontextprotocol/node";
import { createMcpHandler, fromJsonSchema, McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

const inputSchema = fromJsonSchema({ type: "object", properties: { text: { type: "string" } }, required: ["text"] });

function newServer() {
  const server = new McpServer({ name: "typescript-test", version: "1" });
  server.registerTool("echo", { description: "Returns its text.", inputSchema }, async (given) => ({
    content: [{ type: "text", text: JSON.stringify(given) }],
    structuredContent: given,
  }));
  return server;
}

if (process.argv[2] === "stdio") {
  serveStdio(newServer);
} else {
  const legacy = process.argv[2] === "strict" ? "reject" : "stateless";
  const http = createServer(toNodeHandler(createMcpHandler(newServer, { legacy })));
  http.listen(0, "127.0.0.1", () => process.stderr.write(`listening on ${http.address().port}\n`));
}
