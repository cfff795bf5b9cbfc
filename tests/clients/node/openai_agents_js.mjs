// Talks through the npm package `@openai/agents-realtime`, over a WebSocket.
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession, tool } from '@openai/agents-realtime';
import { z } from 'zod';
import { Watch, answered, outcome, speech, tell, toolChoice, wsUrl } from './outcome.mjs';

const weather = tool({
  name: 'get_weather',
  description: 'Tells the weather of a city.',
  parameters: z.object({ city: z.string().max(20) }),
  execute: async ({ city }) => {
    outcome.called.push({ city });
    choose('none');
    return 'It is sunny and warm.';
  },
});

const transport = new OpenAIRealtimeWebSocket({ url: `${wsUrl}/v1/realtime?model=gpt-realtime` });
const agent = new RealtimeAgent({ name: 'assistant', instructions: 'Be brief.' });
const able = new RealtimeAgent({ name: 'assistant', instructions: 'Be brief.', tools: [weather] });
const session = new RealtimeSession(agent, { transport, model: 'gpt-realtime' });

const watch = new Watch();
const seen = {}; // kinds of events, as they came
const understood = {}; // and as the package's own types took them
let pieces = [];

// Every event comes as '*' first, then under its own name if the package could read it.
transport.on('*', (event) => {
  if (!(event.type in seen)) transport.on(event.type, () => (understood[event.type] = (understood[event.type] ?? 0) + 1));
  seen[event.type] = (seen[event.type] ?? 0) + 1;
  if (event.type === 'conversation.item.input_audio_transcription.completed') outcome.heard.push(event.transcript);
  if (event.type === 'response.created') pieces = [];
  watch.note(event.type, event);
});
session.on('audio', (event) => pieces.push(Buffer.from(event.data)));
session.on('error', (event) => outcome.troubles.push(JSON.stringify(event)));
session.on('audio_interrupted', () => watch.note('audio_interrupted'));
session.on('agent_end', (_context, _agent, text) => watch.note('agent_end', text));

function choose(choice) {
  transport.sendEvent({ type: 'session.update', session: { type: 'realtime', tool_choice: choice } });
}

function speak(name) {
  for (const piece of speech(name)) session.sendAudio(new Uint8Array(piece).buffer);
}

async function turn(begin) {
  const done = watch.until('response.done');
  const end = watch.until('agent_end');
  begin();
  await done;
  answered(await end, pieces);
}

async function toolTurn() {
  await session.updateAgent(able);
  choose(toolChoice);
  const spoken = watch.until('response.output_audio.delta'); // a call alone has no sound
  session.sendMessage('What is the weather in Paris?');
  await spoken;
  outcome.after_tool = await watch.until('agent_end');
}

async function interruptedTurn() {
  const begun = watch.until('response.output_audio.delta');
  const done = watch.until('response.done');
  const interrupted = watch.until('audio_interrupted');
  session.sendMessage('Tell me a very long story about the sea.');
  await begun;
  speak('interruption');
  await interrupted;
  outcome.cut = (await done).response.status === 'cancelled';
}

await session.connect({ apiKey: 'none' });
await turn(() => speak('question'));
await turn(() => session.sendMessage('Hello, how are you?'));
await toolTurn();
await interruptedTurn();
outcome.notes = { seen, understood, history: session.history.map((item) => [item.type, item.role, item.status]) };
session.close();
tell();
