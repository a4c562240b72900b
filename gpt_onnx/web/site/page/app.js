/**
 * The page: it starts the worker, hands it what the user asks for, and shows what it says.
 *
 * States are three: loading, idle, busy; only a function here changes them. `?threads=N` sets the number of threads.
 */

import { Answer, wholeText } from "./answer.js";
import { element, show } from "./dom.js";
import { registerOffline, showOffline } from "./offline.js";
import { showReport, showTesting } from "./selftest.js";
import { readSettings, showDefaults } from "./settings.js";
import { megabytes, roughly } from "./words.js";

const BASE = new URL("../", import.meta.url);
const worker = new Worker(new URL("worker.js", BASE), { type: "module" });
const offline = registerOffline(BASE);

/** @type {any} What the worker said when the model was ready. */
let model = null;
/** @type {Answer | null} */
let answer = null;

/** @param {"loading" | "idle" | "busy" | "broken"} state */
function enter(state) {
  document.documentElement.dataset.state = state;
  element("go").disabled = state !== "idle";
  element("test").disabled = state !== "idle" || !model?.tests;
  element("stop").disabled = state !== "busy" || answer === null;
  element("loading").hidden = state !== "loading";
}

/** @param {{ total: number }} question Whether to fetch so much. */
function onAsk({ total }) {
  const button = element("load");
  button.textContent = `Load the model (${megabytes(total)})`;
  button.hidden = false;
  element("progress-text").textContent = "It is loaded once, and then kept on this device.";
  button.onclick = () => {
    button.hidden = true;
    worker.postMessage({ agree: true });
  };
}

/** @param {{ done: number, total: number }} progress */
function onProgress({ done, total }) {
  const bar = element("progress");
  bar.max = total;
  bar.value = Math.min(done, total);
  element("progress-text").textContent =
    done < total ? `${megabytes(done)} of ${megabytes(total)}` : `${megabytes(total)}; starting…`;
}

/** @param {any} ready */
function onReady(ready) {
  model = ready;
  const { manifest, defaults, threads, notice, byIds } = ready;
  const parts = [
    `${roughly(manifest.model.parameters)} parameters`,
    manifest.precision,
    threads > 1 ? `${threads} threads` : "1 thread",
    "runs on this device: what you write stays here",
  ];
  element("facts").textContent = parts.join(" · ");
  if (notice) show("notice", notice);
  if (byIds) element("prompt-label").textContent = "Prompt as token ids, such as 1, 2, 3";
  element("stop-texts").disabled = byIds;
  showDefaults(defaults.sampling);
  element("said").textContent = "The model is ready";
  enter("idle");
}

/** @param {any} step */
function onStep(step) {
  answer?.take(step);
  if (step.reason === null) return;
  answer = null;
  const wasOnStop = document.activeElement === element("stop");
  enter("idle");
  if (wasOnStop) element("go").focus(); // the focus must not fall off a button that is disabled
}

/** @param {import("../engine/reference.js").Report} report */
function onReport(report) {
  showReport(report);
  enter("idle");
}

/** @param {{ during: string, sentence: string }} failure */
function onFailed({ during, sentence }) {
  show("problem", sentence);
  if (during === "load" && !model) return enter("broken");
  answer?.abandon();
  answer = null;
  enter("idle");
}

async function onKept() {
  showOffline(await offline);
}

const HEARD = {
  ask: onAsk,
  progress: onProgress,
  ready: onReady,
  step: onStep,
  testing: showTesting,
  report: onReport,
  failed: onFailed,
  kept: onKept,
};

worker.onmessage = ({ data }) => {
  for (const [name, value] of Object.entries(data)) HEARD[/** @type {keyof typeof HEARD} */ (name)](value);
};
worker.onerror = (event) => {
  onFailed({ during: "load", sentence: `The page's program cannot be started: ${event.message || "a file is missing"}; load the page again.` });
};

function start() {
  if (element("go").disabled || !element("form").reportValidity()) return;
  show("problem", "");
  const prompt = element("prompt").value;
  const settings = readSettings();
  answer = new Answer(prompt, { seed: settings.seed, greedy: settings.sampling.temperature === 0, byIds: model.byIds });
  enter("busy");
  worker.postMessage({ generate: { prompt, ...settings } });
}

function stop() {
  if (answer) worker.postMessage({ stop: true });
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
element("stop").addEventListener("click", stop);
element("reset").addEventListener("click", () => model && showDefaults(model.defaults.sampling));
element("test").addEventListener("click", () => {
  show("problem", "");
  enter("busy");
  worker.postMessage({ test: true });
});
element("copy").addEventListener("click", async () => {
  await navigator.clipboard?.writeText(wholeText());
  element("status").textContent = "Copied.";
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start();
  if (event.key === "Escape") stop();
});

if (matchMedia("(max-width: 56rem)").matches) element("settings").open = false;
enter("loading");
const threads = Number(new URLSearchParams(location.search).get("threads")) || undefined;
worker.postMessage({ load: { threads } });
