// Feeds the captions with a server's events.

import assert from "node:assert/strict";
import test from "node:test";

import { Captions } from "../../web_demo/captions.js";

const TRANSCRIPTION = "conversation.item.input_audio_transcription";
const TRANSCRIPT = "response.output_audio_transcript";

function captions(...events) {
  const shown = [];
  const kept = new Captions((line) => shown.push(line));
  for (const event of events) kept.feed(event);
  return { kept, shown, texts: () => kept.lines.map(({ role, text, state }) => [role, text, state]) };
}

test("the user's words appear while they are spoken, and are put right at the end", () => {
  const { kept, texts, shown } = captions(
    { type: "input_audio_buffer.speech_started", item_id: "u" },
    { type: `${TRANSCRIPTION}.delta`, item_id: "u", delta: "What are" },
    { type: `${TRANSCRIPTION}.delta`, item_id: "u", delta: " you" },
  );
  assert.deepEqual(texts(), [["user", "What are you", "open"]]);
  assert.deepEqual(shown.map(({ text }) => text), ["", "What are", "What are you"]);
  kept.feed({ type: `${TRANSCRIPTION}.completed`, item_id: "u", transcript: " What are you doing? " });
  assert.deepEqual(texts(), [["user", "What are you doing?", "done"]]);
});

test("the order is that of speaking, not of transcribing", () => {
  const { texts } = captions(
    { type: "input_audio_buffer.speech_started", item_id: "u" },
    { type: `${TRANSCRIPT}.delta`, item_id: "a", delta: "Well" },
    { type: `${TRANSCRIPTION}.completed`, item_id: "u", transcript: "Hello." },
  );
  assert.deepEqual(texts(), [
    ["user", "Hello.", "done"],
    ["assistant", "Well", "open"],
  ]);
});

test("a sound without words leaves no line", () => {
  const { texts, shown } = captions(
    { type: "input_audio_buffer.speech_started", item_id: "u" },
    { type: `${TRANSCRIPTION}.completed`, item_id: "u", transcript: "" },
  );
  assert.deepEqual(texts(), []);
  assert.equal(shown.at(-1).state, "gone");
});

test("speech that could not be transcribed is told as that", () => {
  const { texts } = captions(
    { type: "input_audio_buffer.speech_started", item_id: "u" },
    { type: `${TRANSCRIPTION}.failed`, item_id: "u", error: {} },
  );
  assert.deepEqual(texts(), [["user", "(not understood)", "done"]]);
});

test("a typed turn is shown, a spoken item is not shown twice", () => {
  const { texts } = captions(
    { type: "conversation.item.added", item: { id: "t", role: "user", content: [{ type: "input_text", text: "Hi" }] } },
    { type: "conversation.item.added", item: { id: "s", role: "user", content: [{ type: "input_audio" }] } },
    { type: "conversation.item.added", item: { id: "a", role: "assistant", content: [] } },
    { type: "conversation.item.added", item: { id: "f", type: "function_call" } },
  );
  assert.deepEqual(texts(), [["user", "Hi", "done"]]);
});

test("an interrupted answer ends where it was heard, whatever comes late", () => {
  const { kept, texts } = captions({ type: `${TRANSCRIPT}.delta`, item_id: "a", delta: "One two three four." });
  kept.interrupt("a", 700);
  kept.feed({ type: `${TRANSCRIPT}.delta`, item_id: "a", delta: " Five." });
  kept.feed({ type: `${TRANSCRIPT}.done`, item_id: "a", transcript: "One two three four. Five." });
  assert.deepEqual(texts(), [["assistant", "One two three four.", "interrupted"]]);
  kept.feed({ type: "conversation.item.retrieved", item: { id: "a", content: [{ transcript: "One two" }] } });
  assert.deepEqual(texts(), [["assistant", "One two", "interrupted"]]);
  assert.equal(kept.lines[0].heardMs, 700);
});

test("an answer of which nothing was heard is taken away", () => {
  const { kept, texts } = captions({ type: `${TRANSCRIPT}.delta`, item_id: "a", delta: "One" });
  kept.interrupt("a", 0);
  kept.feed({ type: "conversation.item.retrieved", item: { id: "a", content: [{ type: "output_audio" }] } });
  assert.deepEqual(texts(), []);
});
