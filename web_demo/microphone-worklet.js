// Turns what the microphone hears into frames of 24 kHz PCM16 with their energies, on the audio thread.

import { Resampler } from "./resampler.js";

const RATE_HZ = 24000;
const FRAME = RATE_HZ / 50; // 20 ms
const SPAN = RATE_HZ / 200; // 5 ms: how finely the end of speech is told

class MicrophoneProcessor extends AudioWorkletProcessor {
  #resampler = sampleRate === RATE_HZ ? null : new Resampler(sampleRate, RATE_HZ);
  #frame = new Float32Array(FRAME);
  #filled = 0;

  process([[input]]) {
    if (!input) return true; // the track has not begun yet
    const samples = this.#resampler ? this.#resampler.feed(input) : input;
    for (let at = 0; at < samples.length; ) {
      const piece = samples.subarray(at, at + FRAME - this.#filled);
      this.#frame.set(piece, this.#filled);
      this.#filled += piece.length;
      at += piece.length;
      // What is left of this quantum belongs to the next frame: this one ended that much earlier.
      if (this.#filled === FRAME) this.#send(currentTime + input.length / sampleRate - (samples.length - at) / RATE_HZ);
    }
    return true;
  }

  #send(endS) {
    const pcm = Int16Array.from(this.#frame, (sample) => Math.round(Math.min(1, Math.max(-1, sample)) * 32767));
    const energies = [];
    for (let at = 0; at < FRAME; at += SPAN) {
      const span = this.#frame.subarray(at, at + SPAN);
      energies.push(Math.sqrt(span.reduce((sum, sample) => sum + sample * sample, 0) / SPAN));
    }
    this.#filled = 0;
    this.port.postMessage({ pcm, energies, spanS: SPAN / RATE_HZ, endS }, [pcm.buffer]);
  }
}

registerProcessor("microphone", MicrophoneProcessor);
