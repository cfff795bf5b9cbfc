// Speaks the Realtime protocol over a WebSocket: opens a session, sends events, hands on those that come.

import { health } from "./health.js";
import { Problem } from "./problems.js";

/** The rate of the protocol's PCM, both ways. */
export const RATE_HZ = 24000;

const MAX_UNSENT_BYTES = 512 * 1024; // about eight seconds of the microphone
const OPEN_MS = 15000; // from dialling to a session that can be used
const KEY_PROTOCOL = "openai-insecure-api-key.";
const TOKEN = /^[\w!#$%&'*+.^`|~-]*$/; // what a subprotocol may be made of
const SESSION = {
  type: "realtime",
  audio: { input: { transcription: { model: "whisper-1", delay: "minimal" } } }, // words while they are being spoken
};

export class Connection {
  #socket;
  #on;
  #closed = false;

  /**
   * Open a session and wait until it has our settings.
   * @param on {event(event), lost(problem)}; `lost` is called once, and not after `close`
   * @throws {Problem}
   */
  static async open(key, on) {
    if (!TOKEN.test(key)) throw new Problem("key-wrong");
    const connection = new Connection(on);
    await connection.#dial(key);
    return connection;
  }

  constructor(on) {
    this.#on = on;
  }

  send(event) {
    if (this.#socket.readyState !== WebSocket.OPEN) return; // `lost` tells, or has told
    if (this.#socket.bufferedAmount > MAX_UNSENT_BYTES) this.#lose(new Problem("slow"));
    else this.#socket.send(JSON.stringify(event));
  }

  close() {
    this.#closed = true;
    this.#socket.close();
  }

  #dial(key) {
    const url = new URL("../v1/realtime", import.meta.url);
    url.protocol = url.protocol.replace("http", "ws");
    // A browser can't read why a handshake was refused. With a key among the protocols, even an empty one, the server
    // accepts first and says by an event when it wants another.
    this.#socket = new WebSocket(url, ["realtime", KEY_PROTOCOL + key]);
    return new Promise((resolve, reject) => {
      const fail = (problem) => {
        clearTimeout(patience);
        this.#socket.onclose = this.#socket.onmessage = null;
        this.close();
        reject(problem);
      };
      const patience = setTimeout(() => fail(new Problem("unreachable")), OPEN_MS);
      this.#socket.onclose = async () => fail(await whyRefused());
      this.#socket.onmessage = ({ data }) => {
        const event = JSON.parse(data);
        if (event.type === "session.created") this.send({ type: "session.update", session: SESSION });
        if (event.type === "error") fail(refusal(event.error, key));
        if (event.type !== "session.updated") return;
        clearTimeout(patience);
        this.#listen();
        resolve();
      };
    });
  }

  #listen() {
    this.#socket.onmessage = ({ data }) => this.#on.event(JSON.parse(data));
    this.#socket.onclose = ({ reason }) => this.#lose(new Problem("lost", reason));
  }

  #lose(problem) {
    if (this.#closed) return;
    this.close();
    this.#on.lost(problem);
  }
}

function refusal(error, key) {
  if (error.code === "invalid_api_key") return new Problem(key ? "key-wrong" : "key-needed");
  return new Problem("server", error.message);
}

/** A refused handshake looks like a dead server; the server's health tells them apart. */
async function whyRefused() {
  const { state } = await health();
  return new Problem(state === "ready" ? "full" : state);
}
