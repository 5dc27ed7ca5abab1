// The official JavaScript SDK of Anthropic against the scripted wire server: what the server says is what the SDK reads.
//
// Run by run.sh, with the address of the server as the only argument.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

// The package is installed below target/, where an import beside this file does not look.
const require = createRequire(path.join(process.env.SDK_NODE_HOME, 'index.js'));
const { default: Anthropic } = await import(pathToFileURL(require.resolve('@anthropic-ai/sdk')));

const client = new Anthropic({ baseURL: process.argv[2], apiKey: 'key', maxRetries: 0 });
const messages = [{ role: 'user', content: 'Why?' }];
const tools = [
  {
    name: 'get_weather',
    input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  },
];

const ask = (model, more = {}) => client.messages.stream({ model, max_tokens: 99, messages, ...more }).finalMessage();

const checks = {
  async 'a text comes whole'() {
    const message = await ask('text');
    assert.equal(message.content[0].text, 'Blue light is scattered most.');
    assert.equal(message.stop_reason, 'end_turn');
  },
  async 'a tool call has its input'() {
    const message = await ask('tool', { tools });
    assert.equal(message.stop_reason, 'tool_use');
    assert.deepEqual(message.content[0].input, { city: 'Riga' });
  },
  async 'errors have their classes'() {
    await assert.rejects(ask('limited'), (error) => {
      assert.ok(error instanceof Anthropic.RateLimitError);
      assert.equal(error.headers.get('retry-after'), '1');
      return true;
    });
    await assert.rejects(ask('unfit'), Anthropic.BadRequestError);
    await assert.rejects(ask('overloaded'), (error) => error.error?.error?.type === 'overloaded_error');
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log('ok', name);
}
console.log('node: @anthropic-ai/sdk: all good');
