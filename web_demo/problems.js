// Says in plain words what went wrong, and what to do about it.

const WORDS = {
  insecure:
    "The browser lets only secure pages use the microphone and play live sound. Open this page as http://localhost on the machine that runs the server, or over https.",
  "microphone-denied":
    "The browser may not use the microphone. Allow it for this page, with the icon beside the address, and try again. Typing works without it.",
  "microphone-missing": "No microphone was found. Plug one in and try again. Typing works without it.",
  "microphone-busy": "The microphone is in use by another program. Close that program and try again.",
  "microphone-failed": "The microphone could not be opened",
  "microphone-lost": "The microphone went away. Plug it in again and start anew.",
  browser: "This browser can't play or record the sound this page needs. A current Chrome, Edge, Firefox or Safari can",
  "key-needed": "This server asks for a key.",
  "key-wrong": "The server does not know this key.",
  full: "All of the server's places are taken. Try again in a moment.",
  loading: "The server is still loading its models. Try again in a moment.",
  unreachable: "No answer from the server. Is it running?",
  lost: "The connection to the server was lost",
  slow: "The network is too slow: what the microphone hears can't be sent in time.",
  ahead: "The server sends speech faster than this page can keep it.",
  server: "The server says",
};

export class Problem extends Error {
  /** @param kind a key of the table above  @param detail what the browser or the server said */
  constructor(kind, detail = "") {
    super(detail ? `${WORDS[kind].replace(/\.$/, "")}: ${detail}` : WORDS[kind].replace(/([^.?])$/, "$1."));
    this.kind = kind;
  }
}
