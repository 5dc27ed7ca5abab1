// The official JavaScript SDK against the front: it works by its base URL alone, and its errors mean what they say.
//
// Run by run.sh, with the front's base URL as the only argument. Every check names what a user of the SDK relies on.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

// The package is installed below target/, where an import beside this file does not look.
const require = createRequire(path.join(process.env.SDK_NODE_HOME, 'index.js'));
const { default: OpenAI } = await import(pathToFileURL(require.resolve('openai')));

const baseURL = process.argv[2];
const apiKey = 'sk-relight-sdk';
const client = new OpenAI({ baseURL, apiKey });
const messages = [{ role: 'user', content: 'Why?' }];
const tools = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      description: 'The weather in a city.',
      parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
    },
  },
];

async function streamed(model) {
  const stream = await client.chat.completions.create({
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
  });
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return { chunks, text: chunks.map((chunk) => chunk.choices[0]?.delta?.content ?? '').join('') };
}

const checks = {
  async 'an answer is an object of the SDK'() {
    const answer = await client.chat.completions.create({ model: 'chat', messages });
    assert.equal(answer.choices[0].message.content, 'You said: Why?');
    assert.equal(answer.model, 'echo');
    assert.ok(answer.usage.total_tokens > 0);
    assert.equal(answer.id, `chatcmpl-${answer._request_id}`);
  },
  async 'headers tell target and attempts'() {
    const { data, response } = await client.chat.completions.create({ model: 'rescued', messages }).withResponse();
    assert.equal(response.headers.get('x-relight-target'), 'counting');
    assert.equal(response.headers.get('x-relight-attempts'), '2');
    assert.equal(data.choices[0].message.content, 'One two three four five.');
  },
  async 'a stream comes in chunks and ends with usage'() {
    const { chunks, text } = await streamed('chat');
    assert.equal(text, 'You said: Why?');
    assert.equal(chunks[0].choices[0].delta.role, 'assistant');
    assert.ok(chunks.at(-1).usage.total_tokens > 0);
  },
  async 'a broken stream is mended without a seam'() {
    assert.equal((await streamed('rescued')).text, 'One two three four five.');
  },
  async 'a stream that cannot be mended throws'() {
    await assert.rejects(streamed('torn'), (error) => error instanceof OpenAI.APIError && error.code === 'stream_interrupted');
  },
  async 'the stream helper gathers tool calls'() {
    const stream = client.chat.completions.stream({ model: 'tools', messages, tools });
    const completion = await stream.finalChatCompletion();
    const call = completion.choices[0].message.tool_calls[0];
    assert.equal(call.function.name, 'get_weather');
    assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Riga' });
  },
  async 'tool calls go there and back'() {
    const answer = await client.chat.completions.create({ model: 'tools', messages, tools });
    assert.equal(answer.choices[0].finish_reason, 'tool_calls');
    const { message } = answer.choices[0];
    const result = { role: 'tool', tool_call_id: message.tool_calls[0].id, content: 'Sunny.' };
    const again = await client.chat.completions.create({ model: 'chat', messages: [...messages, message, result] });
    assert.equal(again.choices[0].message.content, 'You said: Why?');
  },
  async 'every error has its class'() {
    const once = { headers: { 'x-relight-max-retries': '0' }, maxRetries: 0 };
    await assert.rejects(
      client.chat.completions.create({ model: 'limited', messages }, once),
      (error) => error instanceof OpenAI.RateLimitError && Number(error.headers.get('retry-after')) >= 1,
    );
    const kinds = [
      ['long', {}, OpenAI.BadRequestError, 'context_length_exceeded'],
      ['chat', { n: 2 }, OpenAI.BadRequestError, 'unsupported_parameter'],
      ['caht', {}, OpenAI.NotFoundError, 'model_not_found'],
      ['broken', {}, OpenAI.InternalServerError, 'upstream_error'],
    ];
    for (const [model, more, kind, code] of kinds) {
      await assert.rejects(
        client.chat.completions.create({ model, messages, ...more }),
        (error) => error instanceof kind && error.code === code,
        `${model}: ${code}`,
      );
    }
    const stranger = new OpenAI({ baseURL, apiKey: 'sk-unknown' });
    await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);
  },
  async 'models are listed'() {
    const names = [];
    for await (const model of client.models.list()) names.push(model.id);
    assert.ok(names.includes('chat') && names.includes('rescued'), names.join());
    assert.equal((await client.models.retrieve('chat')).id, 'chat');
  },
  async 'a stream that is left is cancelled'() {
    const stream = await client.chat.completions.create({ model: 'slow', messages, stream: true });
    for await (const chunk of stream) {
      assert.ok(chunk);
      break;
    }
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log('ok', name);
}
console.log('node: openai: all good');
