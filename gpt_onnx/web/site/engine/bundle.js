/**
 * What a bundle says of itself, as far as it is needed to run it.
 *
 *     const bundle = await readBundle(files);
 *     bundle.manifest.model.vocab_size, bundle.defaults.sampling, bundle.graph, bundle.data
 *
 * `gpt-onnx web` has verified the bundle and refused what browsers cannot run; this reads what it wrote.
 */

/**
 * @typedef {object} Manifest
 * @property {string} name
 * @property {string} target
 * @property {string} precision
 * @property {object | null} quantization
 * @property {{ layout: string, attention: string, graphs: Record<string, string>, data: string | null,
 *     shards?: string[] }} graph
 * @property {{ vocab_size: number, context_length: number | null, position_limit: number | null,
 *     n_layer: number, n_kv_head: number, cache_head_size: number, parameters: number }} model
 * @property {boolean} checked
 */

/**
 * How text is generated unless the user says otherwise.
 *
 * @typedef {object} Defaults
 * @property {import("./sampling.js").Sampling} sampling
 * @property {number[]} eosIds Ids that end a text.
 * @property {number | null} bosId The id that begins a text.
 */

/** @type {import("./sampling.js").Sampling} */
export const HOUSE_SAMPLING = { temperature: 0.8, topK: 50, topP: 1, minP: 0, repetitionPenalty: 1 };

const WORDS = {
  temperature: "temperature",
  topK: "top_k",
  topP: "top_p",
  minP: "min_p",
  repetitionPenalty: "repetition_penalty",
};

/**
 * Read the object of a generation_config.json: null or absent is the house's default, no sampling is greedy.
 *
 * @param {Record<string, any>} values
 * @returns {Defaults}
 */
export function readDefaults(values) {
  const sampling = { ...HOUSE_SAMPLING };
  for (const [name, word] of Object.entries(WORDS)) {
    if (typeof values[word] === "number") sampling[name] = values[word];
  }
  if (values.do_sample === false) sampling.temperature = 0;
  const eos = values.eos_token_id ?? [];
  return { sampling, eosIds: Array.isArray(eos) ? eos : [eos], bosId: values.bos_token_id ?? null };
}

/** The folder of the bundle in a site. */
const FOLDER = "bundle/";

/**
 * @param {import("./download.js").Files} files
 * @returns {Promise<{ manifest: Manifest, defaults: Defaults, graph: string, data: string[],
 *     file(name: string): string | null }>} Paths are those of the site.
 */
export async function readBundle(files) {
  /** @type {Manifest} */
  const manifest = await files.json(`${FOLDER}manifest.json`);
  const file = (/** @type {string} */ name) => (files.has(FOLDER + name) ? FOLDER + name : null);
  const generation = file("generation_config.json");
  const { graphs, data, shards = [] } = manifest.graph;
  return {
    manifest,
    defaults: readDefaults(generation ? await files.json(generation) : {}),
    graph: FOLDER + graphs.model,
    data: (data ? [data, ...shards] : []).map((path) => FOLDER + path),
    file,
  };
}
