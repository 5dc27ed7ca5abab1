// The official JavaScript SDKs against the front's other protocols: OpenAI's responses, Anthropic's messages.
//
// Run by run.sh, with the front's base URL as the only argument. Every check names what a user of the SDK relies on.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

// The packages are installed below target/, where an import beside this file does not look.
const require = createRequire(path.join(process.env.SDK_NODE_HOME, 'index.js'));
const { default: OpenAI } = await import(pathToFileURL(require.resolve('openai')));
const { default: Anthropic } = await import(pathToFileURL(require.resolve('@anthropic-ai/sdk')));

const baseURL = process.argv[2];
const apiKey = 'sk-relight-sdk';
const { responses } = new OpenAI({ baseURL, apiKey });
const { messages } = new Anthropic({ baseURL: baseURL.replace(/\/v1$/, ''), apiKey });
const question = [{ role: 'user', content: 'Why?' }];
const city = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] };

async function streamed(model) {
  const stream = await responses.create({ model, input: 'Why?', stream: true });
  let text = '';
  for await (const event of stream) if (event.type === 'response.output_text.delta') text += event.delta;
  return text;
}

const told = (model, more = {}) =>
  messages.stream({ model, max_tokens: 99, messages: question, ...more }).finalMessage();

const checks = {
  async 'a response is an object of the SDK'() {
    const answer = await responses.create({ model: 'chat', input: 'Why?' });
    assert.equal(answer.output_text, 'You said: Why?');
    assert.equal(answer.id, `resp_${answer._request_id}`);
  },
  async 'a streamed response is gathered by the SDK'() {
    const answer = await responses.stream({ model: 'thinker', input: 'Why?' }).finalResponse();
    assert.equal(answer.output_text, 'Yes.');
    assert.equal(answer.output[0].summary[0].text, 'Let me think.');
  },
  async 'a conversation goes on from its response'() {
    const tools = [{ type: 'function', name: 'get_weather', parameters: city, strict: false }];
    const first = await responses.create({ model: 'tools', input: 'Why?', tools });
    const call = first.output.find((item) => item.type === 'function_call');
    const result = { type: 'function_call_output', call_id: call.call_id, output: 'Sunny.' };
    const more = { input: [result], previous_response_id: first.id, tools };
    assert.equal((await responses.create({ model: 'chat', ...more })).output_text, 'You said: Why?');
  },
  async 'a broken response is mended or throws'() {
    assert.equal(await streamed('rescued'), 'One two three four five.');
    await assert.rejects(streamed('torn'), (error) => error instanceof OpenAI.APIError && error.code === 'stream_interrupted');
  },
  async 'ids of events break no SDK'() {
    const options = { headers: { 'x-relight-resumable': 'true' } };
    // The second is silent for so long that comments come among its events.
    for (const [model, text] of [['thinker', 'Yes.'], ['slow', 'Late but whole.']]) {
      const answer = await responses.stream({ model, input: 'Why?' }, options).finalResponse();
      assert.equal(answer.output_text, text);
      const message = await messages.stream({ model, max_tokens: 99, messages: question }, options).finalMessage();
      assert.equal(message.content.at(-1).text, text);
    }
  },
  async 'a streamed message is gathered by the SDK'() {
    const message = await told('thinker');
    assert.equal(message.content[0].thinking, 'Let me think.');
    assert.equal(message.content[1].text, 'Yes.');
  },
  async 'a tool call has its input'() {
    const message = await told('tools', { tools: [{ name: 'get_weather', input_schema: city }] });
    assert.equal(message.stop_reason, 'tool_use');
    assert.deepEqual(message.content.at(-1).input, { city: 'Riga' });
  },
  async 'a broken message is mended or throws'() {
    assert.equal((await told('rescued')).content[0].text, 'One two three four five.');
    await assert.rejects(told('torn'), (error) => error.error?.error?.code === 'stream_interrupted');
  },
  async 'errors of messages have their classes'() {
    await assert.rejects(told('caht'), Anthropic.NotFoundError);
    await assert.rejects(told('long'), Anthropic.BadRequestError);
    await assert.rejects(told('broken'), Anthropic.InternalServerError);
  },
};

for (const [name, check] of Object.entries(checks)) {
  await check();
  console.log('ok', name);
}
console.log('node: openai, @anthropic-ai/sdk: all good');
