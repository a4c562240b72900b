/**
 * The self-test: the logits and greedy tokens that the original program computed, computed again here.
 *
 *     const report = await selfTest(model, parseSafetensors(bytes));
 *     report.passed, report.maxRatio
 *
 * A ratio is the largest error as a part of what the parity gate accepts; above 1 it fails. Where two tokens were
 * closer than twice the tolerance either is right, and the comparison ends with the first that went the other way.
 */

import { moment } from "./decoder.js";
import { largest } from "./sampling.js";

/**
 * @typedef {object} Report
 * @property {boolean} passed
 * @property {number} logits How many were compared.
 * @property {number} maxRatio Largest error as a part of its tolerance.
 * @property {number} rmsRatio The same of the root mean square.
 * @property {number} maxError Largest error of the sequence with that ratio.
 * @property {number} tolerance Of that sequence.
 * @property {number} tokens Greedy tokens compared.
 * @property {number | null} differsAt The first that differs though it should not.
 */

/**
 * @param {number} error
 * @param {number} bound
 */
const part = (error, bound) => {
  if (!Number.isFinite(error) || !Number.isFinite(bound)) return Infinity;
  return error === 0 ? 0 : bound > 0 ? error / bound : Infinity;
};

/** @param {{ data: BigInt64Array | Float64Array } | undefined} tensor */
const numbers = (tensor) => Array.from(tensor?.data ?? [], Number);

/**
 * @param {Map<string, import("./safetensors.js").Tensor>} tensors
 * @returns {string[]} The stored sequences.
 */
const casesOf = (tensors) =>
  [...new Set(Array.from(tensors.keys(), (name) => name.replace(/\.[^.]*$/, "")))].filter((name) =>
    name.startsWith("case."),
  );

/**
 * Compute one stored sequence.
 *
 * @param {import("./generation.js").Model} model
 * @param {Map<string, import("./safetensors.js").Tensor>} tensors
 * @param {string} name
 */
async function compareCase({ decoder }, tensors, name) {
  const ids = numbers(tensors.get(`${name}.input_ids`));
  const positions = numbers(tensors.get(`${name}.positions`));
  const chosen = tensors.has(`${name}.vocab_ids`) ? numbers(tensors.get(`${name}.vocab_ids`)) : null;
  const expected = /** @type {Float64Array} */ (tensors.get(`${name}.logits`)?.data);
  const [maxBound, rmsBound] = numbers(tensors.get(`${name}.tolerance`));
  decoder.clear();
  let [start, place, most, squares] = [0, 0, 0, 0];
  for (const position of positions) {
    const logits = /** @type {Float32Array} */ (await decoder.append(ids.slice(start, position + 1)));
    for (const id of chosen ?? logits.keys()) {
      const error = Math.abs(logits[id] - expected[place++]);
      most = error <= most ? most : error; // NaN stays
      squares += error * error;
    }
    start = position + 1;
  }
  const rmsRatio = part(Math.sqrt(squares / place), rmsBound);
  return { logits: place, maxError: most, tolerance: maxBound, maxRatio: part(most, maxBound), rmsRatio };
}

/**
 * Generate the stored tokens again.
 *
 * @param {import("./generation.js").Model} model
 * @param {Map<string, import("./safetensors.js").Tensor>} tensors
 * @returns {Promise<{ tokens: number, differsAt: number | null }>}
 */
async function compareGreedy({ decoder }, tensors) {
  const expected = numbers(tensors.get("greedy.tokens"));
  const margins = numbers(tensors.get("greedy.margins"));
  const [tolerance] = numbers(tensors.get("greedy.tolerance"));
  decoder.clear();
  let pending = numbers(tensors.get("greedy.prompt"));
  for (const [index, token] of expected.entries()) {
    const logits = /** @type {Float32Array} */ (await decoder.append(pending));
    const [{ id }] = largest(logits, 1);
    if (id !== token) return { tokens: index, differsAt: margins[index] <= 2 * tolerance ? null : index };
    pending = [id];
  }
  return { tokens: expected.length, differsAt: null };
}

/**
 * Compute everything that is stored.
 *
 * @param {import("./generation.js").Model} model
 * @param {Map<string, import("./safetensors.js").Tensor>} tensors
 * @param {(done: number, all: number) => void} [progress]
 * @returns {Promise<Report>}
 */
export async function selfTest(model, tensors, progress = () => {}) {
  const names = casesOf(tensors);
  const found = [];
  for (const name of names) {
    found.push(await compareCase(model, tensors, name));
    progress(found.length, names.length);
    await moment();
  }
  const greedy = await compareGreedy(model, tensors);
  const worst = found.reduce((most, one) => (one.maxRatio <= most.maxRatio ? most : one));
  const rmsRatio = found.reduce((most, one) => (one.rmsRatio <= most ? most : one.rmsRatio), 0);
  return {
    ...worst,
    ...greedy,
    logits: found.reduce((sum, one) => sum + one.logits, 0),
    rmsRatio,
    passed: worst.maxRatio <= 1 && rmsRatio <= 1 && greedy.differsAt === null,
  };
}
