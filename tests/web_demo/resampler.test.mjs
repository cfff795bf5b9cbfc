// Holds the resampler to what an ear would notice: tones kept, folded noise absent, no seam between blocks.

import assert from "node:assert/strict";
import test from "node:test";

import { Resampler } from "../../web_demo/resampler.js";

const TO_HZ = 24000;

function resample(fromHz, toneHz, blocks) {
  const resampler = new Resampler(fromHz, TO_HZ);
  const parts = [];
  let at = 0;
  for (const length of blocks) {
    parts.push(resampler.feed(Float32Array.from({ length }, (_, i) => Math.sin((2 * Math.PI * toneHz * (at + i)) / fromHz))));
    at += length;
  }
  return parts.flatMap((part) => [...part]);
}

const quanta = (seconds, fromHz) => new Array(Math.round((seconds * fromHz) / 128)).fill(128);
const power = (samples) => samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length;
const decibels = (samples) => 10 * Math.log10(power(samples) / 0.5);

for (const fromHz of [44100, 48000, 96000, 16000]) {
  test(`${fromHz} Hz: a tone keeps its place in time and its level`, () => {
    const blocks = quanta(0.5, fromHz);
    const out = resample(fromHz, 1000, blocks);
    const missed = (blocks.length * 128 * TO_HZ) / fromHz - out.length;
    assert.ok(missed >= 0 && missed < 0.01 * TO_HZ, `${missed} samples are still to come`);
    const body = out.slice(1000);
    const error = body.map((sample, i) => sample - Math.sin((2 * Math.PI * 1000 * (1000 + i)) / TO_HZ));
    assert.ok(decibels(error) < -60, `${decibels(error)} dB`);
  });
}

test("what the lower rate can't hold is taken out", () => {
  for (const toneHz of [14000, 18000, 21000]) {
    const folded = decibels(resample(48000, toneHz, quanta(0.5, 48000)).slice(1000));
    assert.ok(folded < -60, `${toneHz} Hz folds back at ${folded} dB`);
  }
});

test("blocks of any size give the same stream", () => {
  const whole = resample(44100, 700, [44100]);
  const pieces = resample(44100, 700, [1, 2, 3, 500, 17, ...new Array(300).fill(128), 5177]);
  assert.ok(pieces.length > 20000);
  for (let i = 0; i < Math.min(whole.length, pieces.length); i++) assert.ok(Math.abs(whole[i] - pieces[i]) < 1e-5, `at ${i}`);
});
