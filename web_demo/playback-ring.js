// Keeps the speech that waits to be played, and knows of each item how many of its samples were.
//
// Pure: the worklet plays from it, and a test feeds it by hand. An item is known from `open` (or its first samples)
// until all of it was played after `end`, or until a cut.

/** A sample beyond this is heard; below it is the quiet before a word. */
export const AUDIBLE = 0.01;

/** Stands for the item of a fading tail, which has been accounted for: nothing is told of it any more. */
const FADING = Symbol("fading");

export class PlaybackRing {
  #samples;
  #readAt = 0;
  #waiting = 0;
  #segments = []; // in order of playing: {item, left}
  #items = new Map(); // id: {played, left, ended, audible}

  /** @param {number} capacity how many samples may wait */
  constructor(capacity) {
    this.#samples = new Float32Array(capacity);
  }

  /** Samples that wait to be played. */
  get waiting() {
    return this.#waiting;
  }

  /** An item that will speak. It can be cut before its first sample has come. */
  open(item) {
    if (!this.#items.has(item)) this.#items.set(item, { played: 0, left: 0, ended: false, audible: false });
  }

  /** Add samples of an item. False when there is no room for them: then none was taken. */
  push(item, samples) {
    if (this.#waiting + samples.length > this.#samples.length) return false;
    this.open(item);
    const writeAt = (this.#readAt + this.#waiting) % this.#samples.length;
    const head = Math.min(samples.length, this.#samples.length - writeAt);
    this.#samples.set(samples.subarray(0, head), writeAt);
    this.#samples.set(samples.subarray(head), 0);
    this.#waiting += samples.length;
    this.#items.get(item).left += samples.length;
    const last = this.#segments.at(-1);
    if (last?.item === item) last.left += samples.length;
    else this.#segments.push({ item, left: samples.length });
    return true;
  }

  /** No more will come of an item. Gives how much of it was played, if that is all of it; else null. */
  end(item) {
    const account = this.#items.get(item);
    if (!account) return null;
    account.ended = true;
    return this.#forgetIfPlayed(item, account);
  }

  /**
   * Play into `out`, and zeros where nothing waits.
   * @returns {{kind: "audible" | "done", item: string, at: number}[]} what happened on the way. For "audible", the
   *   first sample of an item that can be heard, `at` is its place in `out`; for "done", how much of it was played.
   */
  pull(out) {
    const news = [];
    let at = 0;
    while (at < out.length && this.#segments.length) {
      const segment = this.#segments[0];
      const account = this.#items.get(segment.item);
      const upto = at + Math.min(segment.left, out.length - at);
      this.#take(out, at, upto);
      if (!account.audible) {
        const loud = out.subarray(at, upto).findIndex((sample) => Math.abs(sample) > AUDIBLE);
        account.audible = loud >= 0;
        if (account.audible) news.push({ kind: "audible", item: segment.item, at: at + loud });
      }
      account.played += upto - at;
      account.left -= upto - at;
      segment.left -= upto - at;
      at = upto;
      if (segment.left === 0) this.#segments.shift();
      const played = this.#forgetIfPlayed(segment.item, account);
      if (played !== null && segment.item !== FADING) news.push({ kind: "done", item: segment.item, at: played });
    }
    out.fill(0, at);
    return news;
  }

  /**
   * Fall silent within `fade` samples, which count as played, and drop the rest.
   * @returns {{item: string, played: number}[]} the items that were not played to their end, in order
   */
  cut(fade) {
    const tail = new Float32Array(Math.min(fade, this.#waiting));
    this.#take(tail, 0, tail.length);
    for (let i = 0; i < tail.length; i++) tail[i] *= 1 - (i + 1) / tail.length; // a jump to zero would click
    let budget = tail.length;
    for (const segment of this.#segments) {
      const spent = Math.min(budget, segment.left);
      this.#items.get(segment.item).played += spent;
      this.#items.get(segment.item).left -= spent;
      budget -= spent;
    }
    const cut = [];
    for (const [item, { played, left, ended }] of this.#items) {
      if (item !== FADING && (!ended || left > 0)) cut.push({ item, played });
    }
    this.#items.clear();
    this.#segments = [];
    this.#waiting = 0;
    if (tail.length) this.#fadeOut(tail);
    return cut;
  }

  #fadeOut(tail) {
    this.push(FADING, tail);
    Object.assign(this.#items.get(FADING), { ended: true, audible: true });
  }

  #take(out, from, upto) {
    const count = upto - from;
    const head = Math.min(count, this.#samples.length - this.#readAt);
    out.set(this.#samples.subarray(this.#readAt, this.#readAt + head), from);
    out.set(this.#samples.subarray(0, count - head), from + head);
    this.#readAt = (this.#readAt + count) % this.#samples.length;
    this.#waiting -= count;
  }

  #forgetIfPlayed(item, account) {
    if (!account.ended || account.left > 0) return null;
    this.#items.delete(item);
    return account.played;
  }
}
