// The AI SDK over gRPC: every scenario once, as JSON. Copied beside the packages that it uses.
import { relight } from '@relight/client/ai-sdk';
import { generateText, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

const [target] = process.argv.slice(2);
const prompt = 'Why is the sky blue?';
const model = (scenario) => relight(`${scenario}-ai-grpc`, { target, timeoutMs: 60_000 });

async function generate(scenario) {
  const { text, providerMetadata, usage } = await generateText({ model: model(scenario), prompt });
  return { text, attempts: providerMetadata.relight.attempts, tokens: usage.outputTokens };
}

async function stream(scenario) {
  let text = '';
  for await (const piece of streamText({ model: model(scenario), prompt }).textStream) text += piece;
  return { text };
}

const getWeather = tool({
  description: 'The weather in a city.',
  inputSchema: z.object({ city: z.string() }),
  execute: async ({ city }) => `It is sunny in ${city}.`,
});

const outcomes = {
  call: await generate('call'),
  stream: await stream('stream'),
  limited: await generate('limited'),
  cut: await stream('cut'),
  outage: await generate('outage'),
  tools: await generateText({
    model: model('tools'),
    prompt: 'What is the weather in Riga?',
    tools: { get_weather: getWeather },
    stopWhen: stepCountIs(3),
  }).then(({ text }) => ({ text })),
  dead: await generate('dead').catch((error) => ({ error: error.constructor.name })),
};
console.log(JSON.stringify(outcomes));
process.exit(0);
