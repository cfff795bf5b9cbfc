// Is the loudspeaker: takes an item's speech as it comes over the wire, plays it, and cuts it.

import { RATE_HZ } from "./connection.js";

export class Player {
  #node;
  #cutting = []; // resolvers of the cuts under way, in order
  #open = new Set(); // items that are not heard to their end
  #silenced = new Set(); // items that were cut; what still comes of them is dropped
  #sounding = new Set(); // items that can be heard now
  #on;

  /** Samples that left the worklet so far, in all. */
  played = 0;

  /** @param on {audible(item, atS), done(item, playedMs), full()}; `atS` is in the context's time */
  constructor(context, on) {
    this.#on = on;
    this.#node = new AudioWorkletNode(context, "player", { numberOfInputs: 0, outputChannelCount: [1] });
    this.#node.port.onmessage = ({ data }) => this.#hear(data);
    this.#node.connect(context.destination);
  }

  static async load(context) {
    await context.audioWorklet.addModule(new URL("player-worklet.js", import.meta.url));
  }

  /** True while an item is being heard, the gaps between its chunks included. */
  get speaking() {
    return this.#sounding.size > 0;
  }

  /** An item that will speak; it can be cut from now on. */
  open(item) {
    if (this.#silenced.has(item)) return;
    this.#open.add(item);
    this.#node.port.postMessage({ kind: "open", item });
  }

  /** Play base64 PCM16 at 24 kHz after all that waits. */
  play(item, base64) {
    if (this.#silenced.has(item)) return;
    this.#open.add(item);
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const pcm = new DataView(bytes.buffer);
    const samples = Float32Array.from({ length: bytes.length >> 1 }, (_, i) => pcm.getInt16(2 * i, true) / 32768);
    this.#node.port.postMessage({ kind: "play", item, samples }, [samples.buffer]);
  }

  /** All of an item's speech has come. */
  end(item) {
    this.#node.port.postMessage({ kind: "end", item });
  }

  /** Fall silent now. Gives the items that were not heard to their end: `{item, playedMs}`. */
  async cut() {
    for (const item of this.#open) this.#silenced.add(item);
    this.#open.clear();
    this.#sounding.clear();
    const cut = new Promise((resolve) => this.#cutting.push(resolve));
    this.#node.port.postMessage({ kind: "cut" });
    return (await cut).map(({ item, played }) => ({ item, playedMs: inMs(played) }));
  }

  close() {
    this.#node.port.onmessage = null;
    this.#node.disconnect();
  }

  #hear(news) {
    switch (news.kind) {
      case "audible":
        if (this.#silenced.has(news.item)) break;
        this.#sounding.add(news.item);
        this.#on.audible(news.item, news.atS);
        break;
      case "done":
        this.#open.delete(news.item);
        this.#sounding.delete(news.item);
        this.#on.done(news.item, inMs(news.played));
        break;
      case "cut":
        this.#cutting.shift()(news.items);
        break;
      case "full":
        this.#on.full();
        break;
      case "progress":
        this.played = news.played;
    }
  }
}

function inMs(samples) {
  return Math.floor((samples * 1000) / RATE_HZ); // whole milliseconds that were really heard
}
