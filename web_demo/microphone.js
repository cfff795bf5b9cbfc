// Is the microphone: asks for it, and gives what it hears as frames of 20 ms.

import { Problem } from "./problems.js";

const CONSTRAINTS = {
  audio: { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true },
};
const REASONS = {
  NotAllowedError: "microphone-denied",
  SecurityError: "microphone-denied",
  NotFoundError: "microphone-missing",
  NotReadableError: "microphone-busy",
};

export class Microphone {
  #stream;
  #context;
  #own;
  #node;
  #source;

  /**
   * @param on {frame({pcm, energies, spanS, endS}), lost()}: `pcm` is Int16Array at 24 kHz, `energies` are root mean
   *   squares of its spans, `endS` is when it ended, in the time of `context`
   * @throws {Problem}
   */
  static async open(context, on) {
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia(CONSTRAINTS);
    } catch (error) {
      throw new Problem(REASONS[error.name] ?? "microphone-failed", error.message);
    }
    const microphone = new Microphone(stream);
    try {
      await microphone.#listen(context, on);
    } catch (error) {
      microphone.close();
      throw error;
    }
    return microphone;
  }

  constructor(stream) {
    this.#stream = stream;
  }

  async #listen(context, on) {
    try {
      this.#context = context;
      this.#source = context.createMediaStreamSource(this.#stream);
    } catch (error) {
      // Firefox joins a microphone only to a context of its own rate. The worklet resamples then.
      if (error.name !== "NotSupportedError") throw error;
      this.#context = this.#own = new AudioContext();
      this.#source = this.#context.createMediaStreamSource(this.#stream);
    }
    await this.#context.audioWorklet.addModule(new URL("microphone-worklet.js", import.meta.url));
    // The two contexts count from different moments; they agree to within one block of the sound card.
    const offsetS = context.currentTime - this.#context.currentTime;
    this.#node = new AudioWorkletNode(this.#context, "microphone", { channelCount: 1, channelCountMode: "explicit" });
    this.#node.port.onmessage = ({ data }) => on.frame({ ...data, endS: data.endS + offsetS });
    // Its output is silence; not every browser runs a node that leads nowhere.
    this.#source.connect(this.#node).connect(this.#context.destination);
    for (const track of this.#stream.getAudioTracks()) track.onended = () => on.lost();
  }

  close() {
    for (const track of this.#stream.getTracks()) {
      track.onended = null;
      track.stop();
    }
    if (this.#node) this.#node.port.onmessage = null;
    this.#source?.disconnect();
    this.#node?.disconnect();
    this.#own?.close();
  }
}
