/**
 * The worker that runs the model, so that the page stays responsive.
 *
 * It is told { load }, { generate }, { stop } and { test }, and says { progress }, { ready }, { step }, { report } and
 * { failed }: one sentence, with `fault` where it is this program's.
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
const END_OF_TEXT = "<|endoftext|>";

/** @type {import("./engine/generation.js").Model & { files: Files } | null} */
let model = null;
let stopping = false;

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
  const tokenizerPath = bundle.file("tokenizer.json");
  total = files.done + files.sizeOf([WASM, ...weights, ...(tokenizerPath ? [tokenizerPath] : [])]);
  const [runtime, [graph, ...data], { tokenizer, notice }] = await Promise.all([
    startRuntime(files, threads),
    Promise.all(weights.map((path) => files.bytes(path))),
    readTokenizer(files, bundle),
  ]);
  const names = bundle.data.map((path) => path.split("/").pop());
  const session = await telling("The browser cannot load the graph; run gpt-onnx verify on the bundle", () =>
    Session.load(runtime, graph, new Map(names.map((name, index) => [name, data[index]])), settingsFor(bundle)),
  );
  const { manifest, defaults } = bundle;
  model = { files, manifest, defaults, tokenizer, decoder: decoderFor(session, manifest) };
  postMessage({ ready: { manifest, defaults, threads, notice, byIds: !tokenizer, tests: !!referencePath() } });
  await keep();
}

const referencePath = () => (model?.files.has("bundle/reference.safetensors") ? "bundle/reference.safetensors" : null);

/** Fetch what is not needed yet, so that the page works offline. */
async function keep() {
  const path = referencePath();
  if (path) await model?.files.bytes(path).catch(() => {}); // the self-test will say so
  postMessage({ kept: true });
}

/**
 * @param {string} text
 * @returns {number[]} Its ids, or those that an empty text begins with.
 */
function encoded(text) {
  const { tokenizer, defaults } = /** @type {NonNullable<typeof model>} */ (model);
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
  const bytes = await model.files.bytes(referencePath());
  const progress = (/** @type {number} */ done, /** @type {number} */ all) => postMessage({ testing: { done, all } });
  postMessage({ report: await selfTest(model, parseSafetensors(bytes), progress) });
}

const ACTS = { load, generate: write, test };

self.onmessage = async ({ data }) => {
  if ("stop" in data) {
    stopping = true;
    return;
  }
  const [name, wishes] = Object.entries(data)[0];
  try {
    await ACTS[name](wishes);
  } catch (error) {
    const fault = !(error instanceof SiteError);
    if (fault) console.error(error);
    postMessage({ failed: { during: name, sentence: fault ? `Something went wrong: ${wordsOf(error)}.` : error.message } });
  }
};
