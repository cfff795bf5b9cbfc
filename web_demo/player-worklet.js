// Plays the ring into the loudspeaker, on the audio thread.

import { PlaybackRing } from "./playback-ring.js";

const CAPACITY_S = 90; // a server that runs further ahead than this is refused
const FADE_S = 0.012; // short enough to feel immediate, long enough not to click
const PROGRESS_QUANTA = 10; // how often it is told how much was played: about 20 times a second

class PlayerProcessor extends AudioWorkletProcessor {
  #ring = new PlaybackRing(CAPACITY_S * sampleRate);
  #played = 0;
  #told = 0;
  #quanta = 0;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#obey(data);
  }

  #obey(order) {
    switch (order.kind) {
      case "open":
        this.#ring.open(order.item);
        break;
      case "play":
        if (!this.#ring.push(order.item, order.samples)) this.port.postMessage({ kind: "full" });
        break;
      case "end": {
        const played = this.#ring.end(order.item);
        if (played !== null) this.port.postMessage({ kind: "done", item: order.item, played });
        break;
      }
      case "cut":
        this.port.postMessage({ kind: "cut", items: this.#ring.cut(Math.round(FADE_S * sampleRate)) });
    }
  }

  process(_, [[out]]) {
    const before = this.#ring.waiting;
    const news = this.#ring.pull(out);
    this.#tellProgress(before - this.#ring.waiting);
    for (const { kind, item, at } of news) {
      if (kind === "audible") this.port.postMessage({ kind, item, atS: (currentFrame + at) / sampleRate });
      else this.port.postMessage({ kind, item, played: at });
    }
    return true;
  }

  #tellProgress(played) {
    this.#played += played;
    this.#quanta += 1;
    const due = this.#quanta % PROGRESS_QUANTA === 0 || this.#ring.waiting === 0;
    if (!due || this.#played === this.#told) return;
    this.#told = this.#played;
    this.port.postMessage({ kind: "progress", played: this.#played });
  }
}

registerProcessor("player", PlayerProcessor);
