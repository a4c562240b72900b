/**
 * The controls of sampling: their names and defaults are those of `gpt-onnx generate`.
 *
 *     showDefaults(defaults.sampling);
 *     const { sampling, newTokens, stop, seed } = readSettings();
 */

import { element } from "./dom.js";

const NEW_TOKENS = 128;
const SEED_BITS = 32;
const MOST_SEED = 2n ** 63n - 1n;

/** Each field of the sampling and the control that holds it. */
const CONTROLS = {
  temperature: "temperature",
  topK: "top-k",
  topP: "top-p",
  minP: "min-p",
  repetitionPenalty: "repetition-penalty",
};

/** @param {import("../engine/sampling.js").Sampling} sampling */
export function showDefaults(sampling) {
  for (const [name, id] of Object.entries(CONTROLS)) element(id).value = String(sampling[name]);
  element("new-tokens").value = String(NEW_TOKENS);
  element("seed").value = "";
  element("stop-texts").value = "";
  element("ignore-eos").checked = false;
}

/** @returns {bigint} A random number of 32 bits. */
function randomSeed() {
  return BigInt(crypto.getRandomValues(new Uint32Array(SEED_BITS / 32))[0]);
}

/**
 * Return the lines of the stop texts, with line breaks and tabs where they are written as two characters.
 *
 * @param {string} text
 * @returns {string[]}
 */
export function stopTexts(text) {
  const breaks = { n: "\n", t: "\t", "\\": "\\" };
  const lines = text.split("\n").map((line) => line.replace(/\\([nt\\])/g, (_, letter) => breaks[letter]));
  return [...new Set(lines)].filter((line) => line !== "");
}

/**
 * @returns {{ sampling: import("../engine/sampling.js").Sampling, newTokens: number, stop: string[], seed: bigint,
 *     ignoreEos: boolean }}
 */
export function readSettings() {
  const values = Object.entries(CONTROLS).map(([name, id]) => [name, element(id).valueAsNumber]);
  const written = element("seed").value.trim();
  const seed = written === "" ? randomSeed() : BigInt(written);
  return {
    sampling: Object.fromEntries(values),
    newTokens: element("new-tokens").valueAsNumber,
    stop: stopTexts(element("stop-texts").value),
    seed: seed > MOST_SEED ? MOST_SEED : seed,
    ignoreEos: element("ignore-eos").checked,
  };
}
