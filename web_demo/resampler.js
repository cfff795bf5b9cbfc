// Brings a stream of sound to another rate, block by block, without a seam between the blocks.
//
// Pure. A windowed sinc: what the lower rate can't hold is taken out first, or it would fold back as noise.

const LOBES = 16; // on each side, at the lower rate
const STEPS = 256; // table entries between two zero crossings; between entries it interpolates
const PASS = 0.9; // of the lower rate's band; the rest is the slope

export class Resampler {
  #ratio;
  #scale;
  #reach;
  #kept;
  #at;

  constructor(fromHz, toHz) {
    this.#ratio = fromHz / toHz;
    this.#scale = Math.min(1, toHz / fromHz) * PASS;
    this.#reach = Math.ceil(LOBES / this.#scale);
    this.#kept = new Float32Array(this.#reach); // silence before the first sample
    this.#at = this.#reach;
  }

  /** All output samples that the input so far decides. */
  feed(block) {
    const input = new Float32Array(this.#kept.length + block.length);
    input.set(this.#kept);
    input.set(block, this.#kept.length);
    const count = Math.max(0, Math.ceil((input.length - this.#reach - this.#at) / this.#ratio));
    const output = Float32Array.from({ length: count }, (_, i) => this.#sample(input, this.#at + i * this.#ratio));
    const next = this.#at + count * this.#ratio;
    const drop = Math.min(input.length, Math.max(0, Math.floor(next) - this.#reach));
    this.#kept = input.slice(drop);
    this.#at = next - drop;
    return output;
  }

  #sample(input, at) {
    let sum = 0;
    const first = Math.max(0, Math.ceil(at - this.#reach));
    const last = Math.min(input.length - 1, Math.floor(at + this.#reach));
    for (let i = first; i <= last; i++) sum += input[i] * kernel(Math.abs(at - i) * this.#scale);
    return sum * this.#scale;
  }
}

const TABLE = Float64Array.from({ length: LOBES * STEPS + 2 }, (_, i) => {
  const x = i / STEPS;
  if (x === 0) return 1;
  if (x >= LOBES) return 0;
  const window = 0.42 + 0.5 * Math.cos((Math.PI * x) / LOBES) + 0.08 * Math.cos((2 * Math.PI * x) / LOBES);
  return (Math.sin(Math.PI * x) / (Math.PI * x)) * window;
});

function kernel(x) {
  if (x >= LOBES) return 0;
  const place = x * STEPS;
  const index = Math.floor(place);
  return TABLE[index] + (place - index) * (TABLE[index + 1] - TABLE[index]);
}
