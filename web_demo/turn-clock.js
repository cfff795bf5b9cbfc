// Measures a turn as the page hears it: from the end of the user's speech to the first sound of the answer.
//
// Pure; all times are seconds of one clock, that of the audio context. It compares moments inside the page: what the
// microphone and the loudspeaker add before and after comes on top.

const QUIETEST = 0.003; // root mean square, about -50 dBFS: below it, nothing counts as speech
const OVER_NOISE = 3; // speech is this much louder than the room, about 10 dB
const NOISE_RISE_PER_S = 1.12; // the room's level follows what is quieter at once, what is louder 1 dB a second

export class TurnClock {
  #noise = null;
  #voicedAtS = null; // the end of the last sound that was speech
  #endedAtS = null; // the end of a turn that waits for its answer
  #waitMs = 0;

  /** A span of `spanS` seconds that ended at `atS` had this energy (root mean square, 1 is full scale). */
  hear(energy, atS, spanS) {
    const risen = (this.#noise ?? energy) * NOISE_RISE_PER_S ** spanS;
    this.#noise = Math.max(Math.min(energy, risen), QUIETEST / OVER_NOISE);
    if (energy > this.#noise * OVER_NOISE) this.#voicedAtS = atS;
  }

  /** The server heard speech begin: what waited for an answer waits no more. */
  started() {
    this.#endedAtS = null;
  }

  /** The server decided at `atS` that the turn is over. */
  stopped(atS) {
    this.#endedAtS = this.#voicedAtS;
    this.#waitMs = this.#voicedAtS === null ? 0 : Math.round((atS - this.#voicedAtS) * 1000);
  }

  /** The first sound of an answer was played at `atS`. Gives the turn's figures, or null when no turn was waiting. */
  audible(atS) {
    if (this.#endedAtS === null) return null;
    const voiceToVoiceMs = Math.round((atS - this.#endedAtS) * 1000);
    this.#endedAtS = null;
    return { voiceToVoiceMs, waitMs: this.#waitMs };
  }
}
