/**
 * The worker that runs the model, so that the page stays responsive.
 *
 * It is told { load }, { agree }, { generate }, { stop } and { test }, and says { ask }, { progress }, { ready },
 * { step }, { testing }, { report }, { kept } and { failed }: one sentence, with `fault` where it is this program's.
 */

import { readBundle } from "./engine/bundle.js";
import { decoderFor } from "./engine/decoder.js";
import { Files } from "./engine/download.js";
import { SiteError, telling, wordsOf } from "./engine/errors.js";
import { checkPrompt, generate } from "./engine/generation.js";
import { Runtime, Session } from "./engine/ort.js";
import { selfTest } from "./engine/reference.js";
import { parseSafetensors } from "./engine/safetensors.js";
import { hasSimd, threadCount, unpacked } from "./engine/platform.js";
import { Tokenizer, checkTokenizer } from "./engine/tokenizer.js";

const BASE = new URL("./", import.meta.url);
const WASM = "vendor/ort-wasm-simd-threaded.wasm.gz";
const MAX_UNFOLDED_BYTES = 1_500_000_000;
const ASK_ABOVE_BYTES = 200_000_000;
const REFERENCE = "bundle/reference.safetensors";
const END_OF_TEXT = "<|endoftext|>";

/** @type {import("./engine/generation.js").Model & { files: Files }} There is one once it is loaded. */
let model;
let stopping = false;
let agree = () => {};

/**
 * @param {Files} files
 * @param {Awaited<ReturnType<typeof readBundle>>} bundle
 * @returns {Promise<{ tokenizer: Tokenizer | null, notice: string | null }>} A notice says why there is none.
 */
async function readTokenizer(files, bundle) {
  const path = bundle.file("tokenizer.json");
  if (!path) return { tokenizer: null, notice: "This bundle has no tokenizer: prompts and answers are token ids." };
  try {
    const { default: _, Tokenizer: Library } = await import("./vendor/tokenizers.min.mjs");
    const { eosIds, bosId } = bundle.defaults;
    const control = bosId === null ? eosIds : [...eosIds, bosId];
    const tokenizer = new Tokenizer(await files.json(path), control, Library);
    checkTokenizer(tokenizer, files.list.tokenizer_samples);
    return { tokenizer, notice: null };
  } catch (error) {
    if (error instanceof SiteError) return { tokenizer: null, notice: error.message };
    throw error;
  }
}

/** @param {Files} files */
async function startRuntime(files, threads) {
  const [{ default: factory }, packed] = await Promise.all([
    import("./vendor/ort-wasm-simd-threaded.mjs"),
    files.bytes(WASM),
  ]);
  const wasm = await unpacked(packed);
  return telling("This browser cannot start ONNX Runtime; use a newer one", () =>
    Runtime.start(factory, { wasm, threads }),
  );
}

/**
 * Return settings of the session. WebAssembly has no fast product with integer weights; where they stand behind
 * DequantizeLinear, they can be made floating point once, when the graph is loaded.
 *
 * @param {Awaited<ReturnType<typeof readBundle>>} bundle
 * @returns {Record<string, string>}
 */
function settingsFor({ manifest: { target, quantization, model } }) {
  const unfolds = target === "portable" && quantization !== null && 4 * model.parameters <= MAX_UNFOLDED_BYTES;
  return unfolds ? { "session.disable_quant_qdq": "1" } : {};
}

/**
 * Wait for the user's word before much is fetched.
 *
 * @param {Files} files
 * @param {string[]} paths
 */
async function agreed(files, paths) {
  const total = files.sizeOf(paths);
  if (total <= ASK_ABOVE_BYTES || (await files.haveKept(paths))) return;
  postMessage({ ask: { total } });
  await new Promise((resolve) => {
    agree = () => resolve(null);
  });
}

/** @param {{ threads?: number }} wishes */
async function load(wishes) {
  if (!hasSimd()) {
    throw new SiteError("This browser has no SIMD in WebAssembly, which the model needs; use one of 2023 or newer.");
  }
  const threads = threadCount(wishes.threads);
  /** @type {number} */
  let total;
  const files = await Files.open(BASE, (done) => total && postMessage({ progress: { done, total } }));
  const bundle = await readBundle(files);
  const weights = [bundle.graph, ...bundle.data];
  await agreed(files, weights);
  const tokenizerPath = bundle.file("tokenizer.json");
  total = files.done + files.sizeOf([WASM, ...weights, ...(tokenizerPath ? [tokenizerPath] : [])]);
  const [runtime, [graph, ...data], { tokenizer, notice }] = await Promise.all([
    startRuntime(files, threads),
    Promise.all(weights.map((path) => files.bytes(path))),
    readTokenizer(files, bundle),
  ]);
  const names = bundle.data.map((path) => path.slice(path.lastIndexOf("/") + 1));
  const session = await telling("The browser cannot load the graph; run gpt-onnx verify on the bundle", () =>
    Session.load(runtime, graph, new Map(names.map((name, index) => [name, data[index]])), settingsFor(bundle)),
  );
  const { manifest, defaults } = bundle;
  model = { files, manifest, defaults, tokenizer, decoder: decoderFor(session, manifest) };
  postMessage({ ready: { manifest, defaults, threads, notice, byIds: !tokenizer, tests: files.has(REFERENCE) } });
  await keep();
}


/** Fetch what is not needed yet, so that the page works offline. */
async function keep() {
  if (model.files.has(REFERENCE)) await model.files.bytes(REFERENCE).catch(() => {}); // the self-test will say so
  postMessage({ kept: true });
}

/**
 * @param {string} text
 * @returns {number[]} Its ids, or those that an empty text begins with.
 */
function encoded(text) {
  const { tokenizer, defaults } = model;
  if (!tokenizer) return text.split(/[\s,]+/).filter(Boolean).map(idOf);
  const ids = tokenizer.encode(text);
  if (ids.length) return ids;
  const named = [defaults.bosId, ...defaults.eosIds, tokenizer.idOf(END_OF_TEXT)];
  return named.filter((id) => id !== null).slice(0, 1);
}

/** @param {string} word */
function idOf(word) {
  if (!/^[0-9]{1,9}$/.test(word)) {
    throw new SiteError(`${JSON.stringify(word.slice(0, 40))} is no token id; write integers with commas between them.`);
  }
  return Number(word);
}

/** @param {any} task What the user asked for: a prompt, and the fields of a Request. */
async function write({ prompt, ...wishes }) {
  stopping = false;
  const promptIds = encoded(prompt);
  checkPrompt(promptIds, model.manifest);
  const request = { ...wishes, promptIds, cancelled: () => stopping };
  const started = performance.now();
  for await (const step of generate(model, request)) {
    postMessage({ step: { ...step, promptTokens: promptIds.length, ms: performance.now() - started } });
  }
}

async function test() {
  const bytes = await model.files.bytes(REFERENCE);
  const progress = (/** @type {number} */ done, /** @type {number} */ all) => postMessage({ testing: { done, all } });
  postMessage({ report: await selfTest(model, parseSafetensors(bytes), progress) });
}

const ACTS = { load, generate: write, test };

self.onmessage = async ({ data }) => {
  if ("stop" in data) stopping = true;
  if ("agree" in data) agree();
  if (!(Object.keys(data)[0] in ACTS)) return;
  const [name, wishes] = Object.entries(data)[0];
  try {
    await ACTS[name](wishes);
  } catch (error) {
    const fault = !(error instanceof SiteError);
    if (fault) console.error(error);
    postMessage({ failed: { during: name, sentence: fault ? `Something went wrong: ${wordsOf(error)}.` : error.message } });
  }
};
