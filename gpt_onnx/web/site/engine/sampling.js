/**
 * From the logits of one position to the next token: filters, then one draw.
 *
 *     const sampler = new Sampler({ temperature: 0.8, topK: 50, topP: 1, minP: 0, repetitionPenalty: 1 });
 *     const token = sampler.sample(logits, seen, random);
 *
 * The filters, their order and their ties are those of gpt_onnx.runtime.sampling: repetition penalty,
 * temperature, top-k, top-p, min-p; among equals the lowest id wins. Probabilities are doubles, and a token takes
 * one random number, none when greedy.
 */

import { SiteError } from "./errors.js";

/**
 * How the next token is chosen.
 *
 * @typedef {object} Sampling
 * @property {number} temperature Divides the logits; 0 is greedy.
 * @property {number} topK Keep exactly so many of the most probable tokens; 0 keeps all.
 * @property {number} topP Keep the fewest most probable tokens whose probabilities reach this sum; 1 keeps all.
 * @property {number} minP Keep tokens at least so many times as probable as the most probable; 0 keeps all.
 * @property {number} repetitionPenalty Makes ids that stand in the text less likely; 1 is off.
 */

/**
 * Ids with a number for each: logits, then probabilities.
 *
 * @typedef {{ id: number, value: number }[]} Candidates
 */

/**
 * Refuse logits that no token can be drawn from.
 *
 * @param {Float32Array | Float64Array} logits
 */
export function checkLogits(logits) {
  let bad = 0;
  for (const logit of logits) if (!Number.isFinite(logit)) bad++;
  if (bad) {
    throw new SiteError(
      `${bad} of ${logits.length} logits are NaN or infinite, and only finite ones can be chosen from; ` +
        "run the self-test, and try another browser.",
    );
  }
}

/**
 * Return logits with the ids in `seen` made less likely.
 *
 * @param {Float32Array} logits
 * @param {Iterable<number>} seen Each id once.
 * @param {number} penalty
 * @returns {Float32Array | Float64Array}
 */
export function penalised(logits, seen, penalty) {
  if (penalty === 1) return logits;
  const changed = Float64Array.from(logits);
  for (const id of seen) changed[id] = changed[id] > 0 ? changed[id] / penalty : changed[id] * penalty;
  return changed;
}

/** The largest first, and the lowest id first among equals. */
const byValue = (/** @type {Candidates[0]} */ a, /** @type {Candidates[0]} */ b) =>
  b.value - a.value || a.id - b.id;
const byId = (/** @type {Candidates[0]} */ a, /** @type {Candidates[0]} */ b) => a.id - b.id;

/**
 * Return the `count` largest of the scores that are allowed, by ascending id.
 *
 * What is not above the smallest of the largest so far is passed over, so that few are kept and sorted.
 *
 * @param {Float32Array | Float64Array} scores
 * @param {number} count At least 1.
 * @param {Uint8Array | null} allowed
 * @returns {Candidates}
 */
export function largest(scores, count, allowed = null) {
  const most = Math.max(4 * count, 1024);
  /** @type {Candidates} */
  let kept = [];
  let threshold = -Infinity;
  for (let id = 0; id < scores.length; id++) {
    if (scores[id] <= threshold || (allowed && !allowed[id])) continue;
    kept.push({ id, value: scores[id] });
    if (kept.length === most) {
      kept = kept.sort(byValue).slice(0, count);
      threshold = kept[count - 1].value;
    }
  }
  return kept.sort(byValue).slice(0, count).sort(byId);
}

/**
 * Return probabilities of logits divided by a temperature above 0.
 *
 * @param {Candidates} candidates
 * @param {number} temperature
 * @returns {Candidates}
 */
export function softmax(candidates, temperature) {
  const top = candidates.reduce((most, { value }) => Math.max(most, value), -Infinity);
  const weights = candidates.map(({ id, value }) => ({ id, value: Math.exp((value - top) / temperature) }));
  return normalised(weights);
}

/**
 * @param {Candidates} candidates
 * @returns {Candidates} With values whose sum is 1.
 */
function normalised(candidates) {
  const sum = candidates.reduce((total, { value }) => total + value, 0);
  return candidates.map(({ id, value }) => ({ id, value: value / sum }));
}

/**
 * Return the fewest most probable candidates that reach `topP`, at least one, by ascending id.
 *
 * @param {Candidates} candidates
 * @param {number} topP
 * @returns {Candidates}
 */
export function nucleus(candidates, topP) {
  const ordered = [...candidates].sort(byValue);
  let sum = 0;
  const last = ordered.findIndex(({ value }) => (sum += value) >= topP);
  return last < 0 ? candidates : ordered.slice(0, last + 1).sort(byId);
}

/**
 * Return the id at which the cumulative distribution first exceeds a number in [0, 1).
 *
 * @param {Candidates} candidates
 * @param {number} uniform
 * @returns {number}
 */
export function draw(candidates, uniform) {
  let total = 0;
  const cumulative = candidates.map(({ value }) => (total += value));
  const place = cumulative.findIndex((sum) => sum / total > uniform);
  return candidates[place < 0 ? candidates.length - 1 : place].id;
}

/** Chooses tokens among the ids that are allowed. */
export class Sampler {
  /**
   * @param {Sampling} sampling
   * @param {Uint8Array | null} allowed For each id whether it may be chosen; null: all.
   */
  constructor(sampling, allowed = null) {
    this.sampling = sampling;
    this.allowed = allowed;
  }

  get greedy() {
    return this.sampling.temperature === 0;
  }

  /**
   * Return the ids that may come next, ascending, and their probabilities.
   *
   * @param {Float32Array} logits Of the last position.
   * @param {Iterable<number>} seen The ids of prompt and text so far, each once.
   * @returns {Candidates}
   */
  distribution(logits, seen) {
    checkLogits(logits);
    const scores = penalised(logits, seen, this.sampling.repetitionPenalty);
    if (this.greedy) return largest(scores, 1, this.allowed);
    const { temperature, topK, topP, minP } = this.sampling;
    let kept = softmax(largest(scores, topK || scores.length, this.allowed), temperature);
    if (topP < 1) kept = nucleus(kept, topP);
    const floor = minP * kept.reduce((most, { value }) => Math.max(most, value), 0);
    return normalised(kept.filter(({ value }) => value > 0 && value >= floor));
  }

  /**
   * Return the next token's id.
   *
   * @param {Float32Array} logits
   * @param {Iterable<number>} seen
   * @param {{ next(): number }} random Not asked when greedy.
   * @returns {number}
   */
  sample(logits, seen, random) {
    const candidates = this.distribution(logits, seen);
    return this.greedy ? candidates[0].id : draw(candidates, random.next());
  }
}
