// A client of an MCP server on the official TypeScript SDK: client.mjs URL MODE TOOL ARGUMENTS prints what it got.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const [url, mode, name, given] = process.argv.slice(2);
const client = new Client({ name: "relight-test-client", version: "1" }, { versionNegotiation: { mode } });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const result = await client.callTool({ name, arguments: JSON.parse(given) });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), result }));
await client.close();
process.exit(0);
