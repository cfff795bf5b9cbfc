// Gathers what a client's program saw of its conversation, and prints it: the fields of scripts/outcome.py.
import fs from 'node:fs';

const PIECE = 4800; // bytes of 24 kHz PCM at a time: 100 ms
const PATIENCE_MS = 300_000; // for the whole conversation; a liveness bound, never a measure

export const [url, folder] = process.argv.slice(2);
export const toolChoice = process.env.TOOL_CHOICE ?? 'required';
export const wsUrl = url.replace('http', 'ws');
export const outcome = { heard: [], said: [], called: [], after_tool: '', cut: false, troubles: [], notes: {}, sound: [] };
const sounds = [];

// A warning that a library logs is a trouble, as is whatever nobody catches.
for (const level of ['warn', 'error']) console[level] = (...words) => outcome.troubles.push(words.map(String).join(' '));
process.on('uncaughtException', (error) => outcome.troubles.push(`uncaught: ${error.stack}`));
process.on('unhandledRejection', (error) => outcome.troubles.push(`unhandled: ${error}`));
setTimeout(() => {
  outcome.troubles.push('the conversation did not come to its end');
  tell();
}, PATIENCE_MS).unref();

export function* speech(name) {
  const pcm = fs.readFileSync(`${folder}/${name}.pcm`);
  for (let start = 0; start < pcm.length; start += PIECE) yield pcm.subarray(start, start + PIECE);
}

// Keeps an answer: its words, and its sound as a list of buffers.
export function answered(words, pieces) {
  outcome.said.push(words);
  sounds.push(Buffer.concat(pieces));
}

export function tell() {
  outcome.sound = sounds.map((sound) => sound.length);
  sounds.forEach((sound, number) => fs.writeFileSync(`${folder}/answer${number}.pcm`, sound));
  process.stdout.write(`${JSON.stringify(outcome)}\n`, () => process.exit(0));
}

// Waits for events: `note(kind, event)` when one has come, `until(kind)` for the next one of a kind.
export class Watch {
  #waiting = [];

  note(kind, event) {
    const due = this.#waiting.filter((one) => one.kind === kind);
    this.#waiting = this.#waiting.filter((one) => one.kind !== kind);
    for (const one of due) one.resolve(event);
  }

  until(kind) {
    return new Promise((resolve) => this.#waiting.push({ kind, resolve }));
  }
}

export function words(response) {
  return response.output.flatMap((item) => item.content ?? []).map((part) => part.transcript ?? part.text ?? '').join(' ');
}
