// Talks through the npm package `openai`, whose Realtime client always dials wss.
import OpenAI from 'openai';
import { OpenAIRealtimeWS } from 'openai/realtime/ws';
import { Watch, answered, outcome, speech, tell, toolChoice, url, words } from './outcome.mjs';

const HEARD = 'conversation.item.input_audio_transcription.completed';
const WEATHER = {
  type: 'function',
  name: 'get_weather',
  description: 'Tells the weather of a city.',
  parameters: {
    type: 'object',
    properties: { city: { type: 'string', maxLength: 20 } },
    required: ['city'],
    additionalProperties: false,
  },
};

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none' });
const realtime = new OpenAIRealtimeWS({ model: 'gpt-realtime' }, client);
const watch = new Watch();
const wire = { sent: [], received: [] }; // over TLS no relay sees it
let pieces = [];

realtime.on('error', (error) => outcome.troubles.push(String(error.message)));
realtime.on('event', (event) => {
  wire.received.push(event);
  if (event.type === 'response.created') pieces = [];
  if (event.type === 'response.output_audio.delta') pieces.push(Buffer.from(event.delta, 'base64'));
  watch.note(event.type, event);
});

function send(event) {
  wire.sent.push(event);
  realtime.send(event);
}

function say(text, response) {
  send({ type: 'conversation.item.create', item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] } });
  send({ type: 'response.create', ...(response && { response }) });
}

function speak(name) {
  for (const piece of speech(name)) send({ type: 'input_audio_buffer.append', audio: piece.toString('base64') });
}

async function spokenTurn() {
  const done = watch.until('response.done');
  const heard = watch.until(HEARD);
  speak('question');
  outcome.heard.push((await heard).transcript);
  answered(words((await done).response), pieces);
}

async function typedTurn() {
  const done = watch.until('response.done');
  say('Hello, how are you?');
  answered(words((await done).response), pieces);
}

async function toolTurn() {
  send({ type: 'session.update', session: { type: 'realtime', tools: [WEATHER] } });
  let done = watch.until('response.done');
  say('What is the weather in Paris?', { tool_choice: toolChoice === 'auto' ? 'auto' : { type: 'function', name: 'get_weather' } });
  for (const item of (await done).response.output.filter((one) => one.type === 'function_call')) {
    outcome.called.push(JSON.parse(item.arguments));
    const output = { type: 'function_call_output', call_id: item.call_id, output: 'It is sunny and warm.' };
    send({ type: 'conversation.item.create', item: output });
  }
  done = watch.until('response.done');
  send({ type: 'response.create', response: { tool_choice: 'none' } });
  outcome.after_tool = words((await done).response);
}

async function interruptedTurn() {
  const begun = watch.until('response.output_audio.delta');
  const done = watch.until('response.done');
  say('Tell me a very long story about the sea.', { tool_choice: 'none' });
  await begun;
  speak('interruption');
  outcome.cut = (await done).response.status === 'cancelled';
}

await watch.until('session.created');
const updated = watch.until('session.updated');
send({ type: 'session.update', session: { type: 'realtime', audio: { input: { transcription: { model: 'whisper-1' } } } } });
await updated;
await spokenTurn();
await typedTurn();
await toolTurn();
await interruptedTurn();
realtime.close();
outcome.notes = wire;
tell();
