// Calls this server by gRPC-Web, with the key of the reader, if there is one.

import { decode, encode, method, useSchema } from './codec.js';

/** How long a call that is no stream may take. */
const CALL_WITHIN_MS = 10_000;

const KEY = 'relight.key';

/** Why a call failed: a status of gRPC, by its number, and what the server says. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.code = code;
  }
}

export const UNAVAILABLE = 14;
export const UNAUTHENTICATED = 16;
export const PERMISSION_DENIED = 7;
export const NOT_FOUND = 5;

export async function loadSchema() {
  useSchema(await (await fetch('schema.json')).json());
}

export function key() {
  return sessionStorage.getItem(KEY) ?? '';
}

export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

/** The response of a method that returns one. */
export async function call(name, request) {
  const timeout = AbortSignal.timeout(CALL_WITHIN_MS);
  for await (const response of stream(name, request, timeout)) return response;
  throw new Refused(UNAVAILABLE, 'the server returned nothing');
}

/** The responses of a method, until it ends or is stopped by the signal. */
export async function* stream(name, request, signal) {
  const { path, input, output } = method(name);
  const headers = { 'content-type': 'application/grpc-web+proto', 'x-grpc-web': '1' };
  if (key()) headers.authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(`../${path}`, { method: 'POST', headers, body: frame(encode(input, request)), signal });
  } catch (error) {
    throw new Refused(UNAVAILABLE, `the server cannot be reached: ${error.message}`);
  }
  check(response.headers.get('grpc-status'), response.headers.get('grpc-message'));
  if (!response.ok) throw new Refused(UNAVAILABLE, `the server returned HTTP ${response.status}`);
  for await (const { isTrailer, bytes } of frames(response.body.getReader())) {
    if (isTrailer) {
      const trailers = new Headers(new TextDecoder().decode(bytes).trim().split('\r\n').map((line) => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon), line.slice(colon + 1).trim()];
      }));
      check(trailers.get('grpc-status'), trailers.get('grpc-message'));
      return;
    }
    yield decode(output, bytes);
  }
  throw new Refused(UNAVAILABLE, 'the connection broke');
}

function frame(message) {
  const framed = new Uint8Array(5 + message.length);
  new DataView(framed.buffer).setUint32(1, message.length);
  framed.set(message, 5);
  return framed;
}

async function* frames(reader) {
  let kept = new Uint8Array(0);
  try {
    for (;;) {
      let at = 0;
      while (kept.length - at >= 5) {
        const length = new DataView(kept.buffer, kept.byteOffset + at).getUint32(1);
        if (kept.length - at < 5 + length) break;
        yield { isTrailer: kept[at] >= 128, bytes: kept.subarray(at + 5, at + 5 + length) };
        at += 5 + length;
      }
      let read;
      try {
        read = await reader.read();
      } catch {
        return;
      }
      if (read.done) return;
      const rest = kept.subarray(at);
      kept = new Uint8Array(rest.length + read.value.length);
      kept.set(rest);
      kept.set(read.value, rest.length);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function check(status, message) {
  if (status !== null && status !== '0') throw new Refused(Number(status), decodeURIComponent(message ?? '') || `status ${status}`);
}
