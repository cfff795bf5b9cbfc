// Knows what both sides said, item by item, as the server's events tell it.
//
// Pure: a view is told which line changed.

export class Captions {
  #lines = new Map(); // in order of appearance
  #changed;

  /** @param changed called with each line that is new, changed or (`gone`) taken away */
  constructor(changed) {
    this.#changed = changed;
  }

  /** Copies of all lines: `{id, role, text, state, heardMs}`; state is "open", "done" or "interrupted". */
  get lines() {
    return Array.from(this.#lines.values(), (line) => ({ ...line }));
  }

  /** Take in a server event; those that bear no words are passed over. */
  feed(event) {
    switch (event.type) {
      case "input_audio_buffer.speech_started":
        this.#open(event.item_id, "user");
        break;
      case "conversation.item.input_audio_transcription.delta":
        this.#append(event.item_id, "user", event.delta);
        break;
      case "conversation.item.input_audio_transcription.completed":
        this.#finish(this.#open(event.item_id, "user"), event.transcript.trim(), "done");
        break;
      case "conversation.item.input_audio_transcription.failed":
        this.#finish(this.#open(event.item_id, "user"), "(not understood)", "done");
        break;
      case "conversation.item.added":
        this.#typed(event.item);
        break;
      case "response.output_audio_transcript.delta":
        this.#append(event.item_id, "assistant", event.delta);
        break;
      case "response.output_audio_transcript.done":
        this.#close(event.item_id, event.transcript);
        break;
      case "conversation.item.retrieved":
        this.#heard(event.item);
    }
  }

  /** An answer was cut after `heardMs`; until the server tells which words those are, it stands as it is. */
  interrupt(id, heardMs) {
    const line = this.#lines.get(id);
    if (line) this.#update(line, { state: "interrupted", heardMs });
  }

  #open(id, role) {
    const known = this.#lines.get(id);
    if (known) return known;
    const line = { id, role, text: "", state: "open", heardMs: null };
    this.#lines.set(id, line);
    this.#changed({ ...line });
    return line;
  }

  #append(id, role, delta) {
    const line = this.#open(id, role);
    if (line.state === "open") this.#update(line, { text: line.text + delta });
  }

  #close(id, text) {
    const line = this.#open(id, "assistant");
    if (line.state === "open") this.#finish(line, text.trim(), "done");
  }

  #typed(item) {
    const text = item.role === "user" ? item.content?.find((part) => part.type === "input_text")?.text : undefined;
    if (text) this.#finish(this.#open(item.id, "user"), text, "done");
  }

  #heard(item) {
    const line = this.#lines.get(item.id);
    if (line?.state === "interrupted") this.#finish(line, (item.content?.[0]?.transcript ?? "").trim(), "interrupted");
  }

  /** A line without words, such as that of a cough, is taken away. */
  #finish(line, text, state) {
    if (!text) {
      this.#lines.delete(line.id);
      this.#changed({ ...line, state: "gone" });
    } else this.#update(line, { text, state });
  }

  #update(line, change) {
    Object.assign(line, change);
    this.#changed({ ...line });
  }
}
