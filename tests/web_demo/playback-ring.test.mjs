// Holds the ring to its accounts: what was played of each item, to the sample.

import assert from "node:assert/strict";
import test from "node:test";

import { PlaybackRing } from "../../web_demo/playback-ring.js";

const loud = (count, value = 0.5) => new Float32Array(count).fill(value);

function pull(ring, count) {
  const out = new Float32Array(count);
  return { out, news: ring.pull(out) };
}

test("plays items in order, then silence, and says when each is done", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", loud(3, 0.25));
  assert.equal(ring.end("a"), null);
  ring.push("b", loud(2, 0.5));
  const { out, news } = pull(ring, 8);
  assert.deepEqual([...out], [0.25, 0.25, 0.25, 0.5, 0.5, 0, 0, 0]);
  assert.deepEqual(news, [
    { kind: "audible", item: "a", at: 0 },
    { kind: "done", item: "a", at: 3 },
    { kind: "audible", item: "b", at: 3 },
  ]);
  assert.equal(ring.end("b"), 2);
});

test("keeps order around the end of its memory", () => {
  const ring = new PlaybackRing(10);
  let next = 0;
  let expected = 0;
  for (let round = 0; round < 50; round++) {
    assert.ok(ring.push("a", Float32Array.from({ length: 7 }, () => next++)));
    for (const sample of pull(ring, 7).out) assert.equal(sample, expected++);
  }
});

test("takes all or nothing", () => {
  const ring = new PlaybackRing(10);
  assert.equal(ring.push("a", loud(8)), true);
  assert.equal(ring.push("a", loud(3)), false);
  assert.equal(ring.waiting, 8);
});

test("an item is audible at its first sample that is no quiet, once", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", Float32Array.of(0, 0.001, 0, 0, 0.3, 0.3));
  assert.deepEqual(pull(ring, 3).news, []);
  assert.deepEqual(pull(ring, 3).news, [{ kind: "audible", item: "a", at: 1 }]);
  ring.push("a", loud(5));
  assert.deepEqual(pull(ring, 5).news, []);
});

test("a cut falls silent within the fade, which counts as played", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", loud(50));
  pull(ring, 20);
  assert.deepEqual(ring.cut(10), [{ item: "a", played: 30 }]);
  const { out, news } = pull(ring, 20);
  assert.deepEqual(news, []);
  for (let i = 1; i < 10; i++) assert.ok(out[i] < out[i - 1], "it only gets quieter");
  assert.deepEqual([...out.subarray(9)], new Array(11).fill(0));
});

test("a cut reports every item that was not played to its end, and those that have not begun", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", loud(10));
  ring.end("a");
  ring.push("b", loud(10));
  ring.open("c");
  pull(ring, 4);
  assert.deepEqual(ring.cut(3), [
    { item: "a", played: 7 },
    { item: "b", played: 0 },
    { item: "c", played: 0 },
  ]);
});

test("a cut reports nothing of what was heard to its end, the fade included", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", loud(10));
  ring.end("a");
  pull(ring, 10);
  assert.deepEqual(ring.cut(5), []);
  ring.push("b", loud(4));
  ring.end("b");
  assert.deepEqual(ring.cut(5), []);
});

test("an item that ran dry before its end was cut too", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", loud(10));
  pull(ring, 30);
  assert.deepEqual(ring.cut(5), [{ item: "a", played: 10 }]);
});

test("what comes after a cut plays after the fade, and a second cut in the fade tells nothing of the first", () => {
  const ring = new PlaybackRing(100);
  ring.push("a", loud(50));
  ring.cut(4);
  assert.deepEqual(ring.cut(4), []);
  ring.push("b", loud(2, 0.9));
  const { out, news } = pull(ring, 8);
  assert.deepEqual([...out.subarray(4)], [...loud(2, 0.9), 0, 0]);
  assert.deepEqual(news, [{ kind: "audible", item: "b", at: 4 }]);
});
