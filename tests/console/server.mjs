// Starts the real server and calls it by gRPC-Web as any other client would; messages are written by hand, field by field.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { createServer } from 'node:net';

export const ADMIN = 'sk-console-admin';
export const USER = 'sk-console-user';

export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  return port;
}

/** A server with tests/console/relight.yaml; `stop` ends it. */
export async function start(binary, port) {
  const env = { ...process.env, RELIGHT_PORT: String(port) };
  const child = spawn(binary, ['serve', '--config', 'tests/console/relight.yaml'], { env, stdio: ['ignore', 'ignore', 'pipe'] });
  const lines = createInterface({ input: child.stderr });
  await new Promise((listening, reject) => {
    lines.on('line', (line) => (line.includes('"listening"') ? listening() : process.env.CONSOLE_LOG && console.error(line)));
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}`)));
  });
  const stop = async () => {
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
  };
  return { url: `http://127.0.0.1:${port}`, stop };
}

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) + 128);
  return [...bytes, value];
}

function field(number, value) {
  if (typeof value === 'number') return [...varint(number * 8), ...varint(value)];
  const bytes = typeof value === 'string' ? [...Buffer.from(value)] : value;
  return [...varint(number * 8 + 2), ...varint(bytes.length), ...bytes];
}

/** Invokes a route and returns when it ended. A stream understands rewinds. */
export async function invoke(url, key, route, text, { isStream = false, requestId = '' } = {}) {
  const overrides = field(5, 1);
  const invocation = [
    ...field(1, route),
    ...field(3, field(11, text)),
    ...(requestId ? field(5, requestId) : []),
    ...(isStream ? field(8, overrides) : []),
  ];
  const message = field(1, invocation);
  const length = Buffer.alloc(5);
  length.writeUInt32BE(message.length, 1);
  const response = await fetch(`${url}/relight.v1.RecoveryService/${isStream ? 'StreamWithRecovery' : 'InvokeWithRecovery'}`, {
    method: 'POST',
    headers: { 'content-type': 'application/grpc-web+proto', authorization: `Bearer ${key}` },
    body: Buffer.concat([length, Buffer.from(message)]),
  });
  const body = Buffer.from(await response.arrayBuffer());
  if (response.headers.get('grpc-status') || !body.includes('grpc-status:0')) {
    throw new Error(`${route}: ${response.headers.get('grpc-message')} ${body.toString('latin1').slice(-200)}`);
  }
}
