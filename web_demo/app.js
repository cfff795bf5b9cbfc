// Joins the page to the call: buttons and keys one way, captions, status and figures the other.

import { Call } from "./call.js";
import { CaptionList } from "./caption-list.js";
import { Captions } from "./captions.js";
import { health } from "./health.js";
import { Problem } from "./problems.js";

const STATUS = {
  idle: "Ready when you are",
  connecting: "Connecting",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
  typing: "Microphone off",
};
const METER_GAIN = 6; // speech is around a tenth of full scale; the ring should then be half open
const METER_FALL = 0.85; // per frame of 20 ms

const page = Object.fromEntries(Array.from(document.querySelectorAll("[id]"), (element) => [element.id, element]));
const list = new CaptionList(page.captions, page.conversation);
let captions = null;
let call = null;
let opening = null; // the attempt to open a call or its microphone that is under way
let level = 0;

async function open(listen) {
  const attempt = (opening = Symbol("attempt"));
  report(null);
  list.clear();
  captions = new Captions((line) => {
    list.show(line);
    page.welcome.hidden = true;
  });
  refresh();
  try {
    const opened = await Call.open({ key: page.key.value, listen, captions, on });
    if (opening === attempt) call = opened;
    else opened.close(); // given up meanwhile
  } catch (error) {
    if (opening === attempt) report(error);
  }
  if (opening === attempt) opening = null;
  refresh();
}

/** Open the microphone in a call that was typed so far. */
async function listen() {
  const attempt = (opening = Symbol("attempt"));
  report(null);
  refresh();
  await call.listen().catch((error) => {
    if (opening === attempt) report(error);
  });
  if (opening === attempt) opening = null;
  refresh();
}

function hangUp() {
  opening = null;
  call?.close();
  call = null;
  refresh();
}

function toggle() {
  if (opening || call?.listens) hangUp();
  else if (call) listen();
  else open(true);
}

async function say(text) {
  if (!call) await open(false);
  await call?.say(text);
}

const on = {
  changed: refresh,
  turn({ voiceToVoiceMs, waitMs }) {
    page.voiceToVoice.textContent = voiceToVoiceMs;
    page.wait.textContent = waitMs;
    page.figures.dataset.measured = "";
  },
  level(energy) {
    level = Math.max(Math.min(1, energy * METER_GAIN), level * METER_FALL);
    page.talk.style.setProperty("--level", level.toFixed(3));
  },
  problem: report,
  lost(problem) {
    call = opening = null;
    report(problem);
    refresh();
  },
};

function activity() {
  if (opening) return "connecting";
  return call ? call.activity : "idle";
}

function refresh() {
  const now = activity();
  const listens = Boolean(opening || call?.listens);
  document.body.dataset.activity = now;
  if (page.status.textContent !== STATUS[now]) page.status.textContent = STATUS[now]; // a reader speaks each change
  page.talk.setAttribute("aria-pressed", String(listens));
  page.talk.setAttribute("aria-label", listens ? "Stop talking" : "Start talking");
  if (!listens) page.talk.style.setProperty("--level", 0);
}

function report(problem) {
  page.problem.textContent = problem?.message ?? "";
  page.problem.hidden = !problem;
  const wantsKey = problem instanceof Problem && problem.kind.startsWith("key-");
  if (wantsKey) page.keyForm.hidden = false;
  if (wantsKey) page.key.focus();
}

page.talk.addEventListener("click", toggle);

page.typeForm.addEventListener("submit", (event) => {
  event.preventDefault();
  const text = page.text.value.trim();
  if (!text || opening) return;
  page.text.value = "";
  say(text);
});

page.keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  page.talk.focus();
  toggle();
});

document.addEventListener("keydown", (event) => {
  // A field takes its spaces itself, and a button its own press.
  if (event.code !== "Space" || event.repeat || event.target.closest("input, button, a, summary")) return;
  event.preventDefault();
  toggle();
});

health().then(({ state, models }) => {
  if (state !== "ready") return report(new Problem(state));
  for (const role of ["recognizer", "thinker", "talker"]) {
    const name = document.createElement("li");
    name.textContent = models[role];
    name.title = role;
    page.models.append(name);
  }
});
refresh();

/** What goes on, to look at: for tests, and for the curious in the console. Nothing can be changed through it. */
window.duplexDemo = Object.freeze({
  get state() {
    return {
      activity: activity(),
      lines: captions?.lines ?? [],
      playedSamples: call?.playedSamples ?? 0,
      cuts: structuredClone(call?.cuts ?? []),
      turns: structuredClone(call?.turns ?? []),
      problem: page.problem.textContent,
    };
  },
});
