/**
 * The loop that turns logits into tokens, and tokens into text.
 *
 *     for await (const step of generate(model, request)) show(step.text);
 *
 * It ends with one of the reasons of gpt_onnx.runtime: "eos", "stop", "length", "context", "cancelled".
 */

import { moment } from "./decoder.js";
import { SiteError } from "./errors.js";
import { childOfSeed } from "./random.js";
import { Sampler } from "./sampling.js";
import { TextStream, detokenizer } from "./text.js";

/**
 * @typedef {object} Request
 * @property {number[]} promptIds
 * @property {number} newTokens At most so many.
 * @property {import("./sampling.js").Sampling} sampling
 * @property {string[]} stop Texts at which to stop; not shown.
 * @property {bigint} seed
 * @property {boolean} ignoreEos Whether the tokens that end a text are tokens like any other.
 * @property {() => boolean} cancelled Asked before each token.
 */

/**
 * What became of one token, or the end.
 *
 * @typedef {object} Step
 * @property {number | null} id null: no token of text.
 * @property {string} text What can be shown now.
 * @property {string | null} reason Why it ended; null while it goes on.
 */

/**
 * @typedef {object} Model
 * @property {ReturnType<typeof import("./decoder.js").decoderFor>} decoder
 * @property {import("./bundle.js").Manifest} manifest
 * @property {import("./bundle.js").Defaults} defaults
 * @property {import("./tokenizer.js").Tokenizer | null} tokenizer
 */

/**
 * Refuse a prompt that the model cannot take.
 *
 * @param {number[]} ids
 * @param {import("./bundle.js").Manifest} manifest
 * @throws {SiteError}
 */
export function checkPrompt(ids, { model }) {
  if (ids.length === 0) throw new SiteError("The prompt is empty and this bundle names no end-of-text token; write some text.");
  const wrong = ids.find((id) => !Number.isInteger(id) || id < 0 || id >= model.vocab_size);
  if (wrong !== undefined) {
    throw new SiteError(`The prompt has the id ${wrong}; ids are integers from 0 to ${model.vocab_size - 1}.`);
  }
  if (model.position_limit !== null && ids.length > model.position_limit) {
    throw new SiteError(
      `The prompt has ${ids.length} tokens and the model takes at most ${model.position_limit}; shorten it.`,
    );
  }
}

/**
 * Generate.
 *
 * @param {Model} model
 * @param {Request} request
 * @returns {AsyncGenerator<Step, void>}
 */
export async function* generate({ decoder, manifest, defaults, tokenizer }, request) {
  checkPrompt(request.promptIds, manifest);
  const { vocab_size: vocabSize, position_limit: limit } = manifest.model;
  const sampler = new Sampler(request.sampling, tokenizer?.allowed(vocabSize) ?? null);
  const text = tokenizer && new TextStream(detokenizer(tokenizer, request.promptIds), request.stop);
  const random = childOfSeed(request.seed);
  const seen = new Set(request.promptIds);
  const end = (/** @type {string} */ reason) => ({ id: null, text: text?.flush() ?? "", reason });
  decoder.clear();
  let pending = request.promptIds;
  for (let count = 0; count < request.newTokens; count++) {
    if (limit !== null && decoder.length + pending.length > limit) return yield end("context");
    await moment();
    const logits = request.cancelled() ? null : await decoder.append(pending, request.cancelled);
    if (!logits) return yield end("cancelled");
    const id = sampler.sample(logits, seen, random);
    if (!request.ignoreEos && defaults.eosIds.includes(id)) return yield end("eos");
    seen.add(id);
    pending = [id];
    yield { id, text: text?.push(id) ?? "", reason: null };
    if (text?.stopped) return yield { id: null, text: "", reason: "stop" };
  }
  yield end("length");
}
