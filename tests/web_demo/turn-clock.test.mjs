// Feeds the turn clock with energies and moments, as a call does.

import assert from "node:assert/strict";
import test from "node:test";

import { TurnClock } from "../../web_demo/turn-clock.js";

const SPAN_S = 0.005;

function hear(clock, energy, fromS, untilS) {
  for (let i = 1; i <= Math.round((untilS - fromS) / SPAN_S); i++) clock.hear(energy, fromS + i * SPAN_S, SPAN_S);
}

test("a turn runs from the last sound of speech to the first sound of the answer", () => {
  const clock = new TurnClock();
  hear(clock, 0.0005, 0, 1);
  hear(clock, 0.1, 1, 3);
  hear(clock, 0.0005, 3, 3.6);
  clock.stopped(3.55);
  assert.deepEqual(clock.audible(3.9), { voiceToVoiceMs: 900, waitMs: 550 });
  assert.equal(clock.audible(9), null, "the second answer to a turn is not measured");
});

test("the noise of a room is no speech, and speech over it is", () => {
  const clock = new TurnClock();
  hear(clock, 0.02, 0, 5);
  hear(clock, 0.2, 5, 6);
  hear(clock, 0.02, 6, 6.5);
  clock.stopped(6.5);
  assert.equal(clock.audible(7).voiceToVoiceMs, 1000);
});

test("the clock learns a room that has become louder", () => {
  const clock = new TurnClock();
  hear(clock, 0.003, 0, 1);
  hear(clock, 0.02, 1, 20);
  hear(clock, 0.2, 20, 21);
  hear(clock, 0.02, 21, 21.5);
  clock.stopped(21.5);
  assert.deepEqual(clock.audible(22), { voiceToVoiceMs: 1000, waitMs: 500 });
});

test("speech that goes on is no end: only the turn that was answered is measured", () => {
  const clock = new TurnClock();
  hear(clock, 0.1, 0, 1);
  clock.stopped(1.5);
  clock.started();
  assert.equal(clock.audible(1.7), null);
  hear(clock, 0.0005, 1, 2);
  hear(clock, 0.1, 2, 3);
  clock.stopped(3.5);
  assert.deepEqual(clock.audible(4), { voiceToVoiceMs: 1000, waitMs: 500 });
});

test("an answer that nobody spoke for is not measured", () => {
  assert.equal(new TurnClock().audible(1), null);
  const clock = new TurnClock();
  clock.stopped(1);
  assert.equal(clock.audible(2), null, "the page heard nothing");
});
