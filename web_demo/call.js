// Is one call: a session, the loudspeaker, the microphone if it is wanted, and what they have to do with each other.

import { Connection, RATE_HZ } from "./connection.js";
import { health } from "./health.js";
import { Microphone } from "./microphone.js";
import { Player } from "./player.js";
import { Problem } from "./problems.js";
import { TurnClock } from "./turn-clock.js";

/** An answer may end while our cancel is on its way; that is no trouble. */
const ALREADY_OVER = "response_cancel_not_active";

export class Call {
  #context;
  #connection;
  #player;
  #microphone = null;
  #clock = new TurnClock();
  #captions;
  #on;
  #ready = false;
  #userSpeaks = false;
  #answerDue = false;
  #response = null; // the id of the answer under way
  #over = false;

  /** Answers that were cut, with the milliseconds that were heard of them. */
  cuts = [];
  /** The figures of each turn that was spoken and answered. */
  turns = [];

  /**
   * @param on {changed(), turn(figures), level(energy), problem(problem), lost(problem)}; the call is over with `lost`
   * @throws {Problem}
   */
  static async open({ key, listen, captions, on }) {
    const call = new Call(captions, on);
    try {
      await call.#start(key, listen);
    } catch (error) {
      call.close();
      throw error;
    }
    return call;
  }

  constructor(captions, on) {
    this.#captions = captions;
    this.#on = on;
  }

  /** "listening", "hearing", "thinking" or "speaking"; "typing" when nobody listens. */
  get activity() {
    if (this.#userSpeaks) return "hearing";
    if (this.#player.speaking) return "speaking";
    if (this.#response || this.#answerDue) return "thinking";
    return this.listens ? "listening" : "typing";
  }

  get listens() {
    return this.#microphone !== null;
  }

  get playedSamples() {
    return this.#player.played;
  }

  /** Open the microphone. */
  async listen() {
    const microphone = await Microphone.open(this.#context, {
      frame: (frame) => this.#capture(frame),
      lost: () => this.#lose(new Problem("microphone-lost")),
    });
    if (this.#over) microphone.close(); // whoever was asked for permission hung up instead
    else this.#microphone = microphone;
  }

  /** A typed turn. It interrupts, as a spoken one does. */
  async say(text) {
    if (this.#response) this.#connection.send({ type: "response.cancel" });
    await this.#interrupt();
    const content = [{ type: "input_text", text }];
    this.#connection.send({ type: "conversation.item.create", item: { type: "message", role: "user", content } });
    this.#connection.send({ type: "response.create" });
  }

  close() {
    this.#over = true;
    this.#microphone?.close();
    this.#connection?.close();
    this.#player?.close();
    this.#context?.close();
  }

  async #start(key, listen) {
    await this.#openSound();
    if (listen) await this.listen(); // before dialling: whoever is asked for permission may take a while to answer
    this.#connection = await Connection.open(key, {
      event: (event) => this.#take(event),
      lost: (problem) => this.#lose(problem),
    });
    this.#ready = true;
  }

  async #openSound() {
    // Browsers keep microphones and worklets from pages that came over plain HTTP from another machine.
    if (!window.isSecureContext) throw new Problem("insecure");
    try {
      this.#context = new AudioContext({ sampleRate: RATE_HZ, latencyHint: "interactive" });
      await this.#context.resume();
      await Player.load(this.#context);
    } catch (error) {
      // The worklet is fetched only now, and a server that is gone looks like a browser that can't run it.
      const { state } = await health();
      throw state === "unreachable" ? new Problem(state) : new Problem("browser", error.message);
    }
    this.#player = new Player(this.#context, {
      audible: (_, atS) => this.#answered(atS),
      done: () => this.#on.changed(),
      full: () => this.#lose(new Problem("ahead")),
    });
  }

  #capture({ pcm, energies, spanS, endS }) {
    this.#on.level(Math.max(...energies));
    if (!this.#ready) return;
    energies.forEach((energy, i) => this.#clock.hear(energy, endS - (energies.length - 1 - i) * spanS, spanS));
    const audio = btoa(String.fromCharCode(...new Uint8Array(pcm.buffer)));
    this.#connection.send({ type: "input_audio_buffer.append", audio });
  }

  #take(event) {
    this.#captions.feed(event);
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#userSpeaks = true;
        this.#clock.started();
        this.#interrupt();
        break;
      case "input_audio_buffer.speech_stopped":
        this.#userSpeaks = false;
        this.#answerDue = true;
        this.#clock.stopped(this.#context.currentTime);
        break;
      case "conversation.item.input_audio_transcription.completed":
        if (!event.transcript.trim()) this.#answerDue = false; // a sound without words is not answered
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.#answerDue = false;
        break;
      case "response.created":
        this.#response = event.response.id;
        this.#answerDue = false;
        break;
      case "response.content_part.added":
        if (event.part.type === "audio") this.#player.open(event.item_id);
        break;
      case "response.output_audio.delta":
        this.#player.play(event.item_id, event.delta);
        break;
      case "response.output_audio.done":
        this.#player.end(event.item_id);
        break;
      case "response.done":
        this.#finish(event.response);
        break;
      case "error":
        if (event.error.code === ALREADY_OVER) break;
        this.#on.problem(new Problem("server", event.error.message));
    }
    this.#on.changed();
  }

  /** Fall silent, and tell the server what was heard, so that it remembers that and no more. */
  async #interrupt() {
    for (const { item, playedMs } of await this.#player.cut()) {
      this.cuts.push({ item, playedMs });
      this.#captions.interrupt(item, playedMs);
      this.#connection.send({
        type: "conversation.item.truncate",
        item_id: item,
        content_index: 0,
        audio_end_ms: playedMs,
      });
      this.#connection.send({ type: "conversation.item.retrieve", item_id: item });
    }
    this.#on.changed();
  }

  #answered(atS) {
    const figures = this.#clock.audible(atS);
    if (figures) {
      this.turns.push(figures);
      this.#on.turn(figures);
    }
    this.#on.changed();
  }

  #finish(response) {
    this.#response = null;
    const failure = response.status === "failed" ? response.status_details?.error : null;
    if (failure) this.#on.problem(new Problem("server", failure.message));
  }

  #lose(problem) {
    if (this.#over) return;
    this.close();
    this.#on.lost(problem);
  }
}
