/**
 * A sequence of tokens that grows, with the state that makes growing it cheap: one class a form of graph.
 *
 *     const decoder = decoderFor(session, manifest);
 *     const logits = await decoder.append([5, 6, 7]);        // after the last token, (V)
 *     const all = await decoder.appendAll([8, 9]);           // after each, two times (V)
 *     decoder.clear();
 *
 * Letters in shapes: S new tokens, V vocabulary, K key and value heads, C slots of the cache, E their width.
 */

import { TYPES } from "./ort.js";

/** @typedef {import("./ort.js").Session} Session */
/** @typedef {import("./bundle.js").Manifest} Manifest */

const BLOCK = 256; // slots: capacities are multiples of it
const GROWTH = 1.5; // at least, so that n tokens cost O(n) copying in all
const LONGEST_RUN = 128; // tokens of a prompt computed at once; between runs the stop button is heard

/** @param {number} length */
const inBlocks = (length) => Math.ceil(Math.max(length, 1) / BLOCK) * BLOCK;

/** Gives a moment to what waits, such as a press of the stop button. */
const channel = new MessageChannel();
export const moment = () =>
  new Promise((resolve) => {
    channel.port1.onmessage = resolve;
    channel.port2.postMessage(null);
  });

/** An input or output whose memory is ours. */
class Buffer {
  /**
   * @param {import("./ort.js").Runtime} runtime
   * @param {import("./ort.js").ElementType} type
   * @param {number[]} dims
   */
  constructor(runtime, type, dims) {
    this.runtime = runtime;
    this.length = dims.reduce((product, dim) => product * dim, 1);
    this.address = runtime.allocate(this.length * TYPES[type].bytes);
    this.bytes = this.length * TYPES[type].bytes;
    this.handle = runtime.tensor(type, this.address, dims);
  }

  /** @returns {BigInt64Array} What an int64 buffer holds, until the next run. */
  get integers() {
    return this.runtime.view(BigInt64Array, this.address, this.length);
  }

  /** @returns {Float32Array} A copy of what a float32 buffer holds. */
  get floats() {
    return this.runtime.view(Float32Array, this.address, this.length).slice();
  }

  release() {
    this.runtime.release(this.handle);
    this.runtime.free(this.address);
  }
}

/** What the forms share: blocks, and which logits are kept. */
class Decoder {
  /**
   * @param {Session} session
   * @param {Manifest} manifest
   */
  constructor(session, manifest) {
    this.session = session;
    this.runtime = session.runtime;
    this.model = manifest.model;
    this.length = 0;
  }

  /**
   * Append tokens and return the logits after the last of them.
   *
   * @param {number[]} ids At least one.
   * @param {() => boolean} [cancelled] Asked between blocks of a long prompt.
   * @returns {Promise<Float32Array | null>} null if it was cancelled.
   */
  async append(ids, cancelled = () => false) {
    let logits = null;
    for (let start = 0; start < ids.length; start += LONGEST_RUN) {
      if (start > 0) await moment();
      if (cancelled()) return null;
      [logits] = (await this.extend(ids.slice(start, start + LONGEST_RUN), false)).slice(-1);
    }
    return logits;
  }

  /**
   * Append tokens and return the logits after each.
   *
   * @param {number[]} ids
   * @returns {Promise<Float32Array[]>}
   */
  async appendAll(ids) {
    const rows = [];
    for (let start = 0; start < ids.length; start += LONGEST_RUN) {
      rows.push(...(await this.extend(ids.slice(start, start + LONGEST_RUN), true)));
    }
    return rows;
  }

  /** Forget all tokens. */
  clear() {
    this.length = 0;
  }

  /**
   * Append a block.
   *
   * @param {number[]} ids
   * @param {boolean} all Whether logits are wanted after each token, or after the last.
   * @returns {Promise<Float32Array[]>}
   */
  async extend(ids, all) {
    throw new Error(`${this.constructor.name} cannot extend by ${ids.length} (${all})`);
  }

  /**
   * Make the int64 inputs of a run of S tokens.
   *
   * @param {number} count S.
   * @param {number} slots That the mask reaches.
   */
  inputs(count, slots) {
    const integers = (/** @type {number[]} */ dims) => new Buffer(this.runtime, "int64", dims);
    return { ids: integers([1, count]), mask: integers([1, slots]), positions: integers([1, count]), keep: integers([1]) };
  }

  /**
   * Fill them.
   *
   * @param {ReturnType<Decoder["inputs"]>} inputs
   * @param {number[]} newIds
   * @param {boolean} all
   */
  fill({ ids, mask, positions, keep }, newIds, all) {
    ids.integers.set(newIds.map(BigInt));
    positions.integers.set(newIds.map((_, index) => BigInt(this.length + index)));
    const ones = mask.integers;
    ones.fill(1n, 0, this.length + newIds.length).fill(0n, this.length + newIds.length);
    keep.integers[0] = all ? 0n : 1n;
  }

  /**
   * @param {string} prefix
   * @returns {string[]} Names of the cache's tensors.
   */
  cacheNames(prefix) {
    const layers = Array.from({ length: this.model.n_layer }, (_, layer) => layer);
    return layers.flatMap((layer) => [`${prefix}.${layer}.key`, `${prefix}.${layer}.value`]);
  }

  get cacheType() {
    return this.session.type("past_key_values.0.key");
  }

  /** @param {number} slots */
  cacheDims(slots) {
    return [1, this.model.n_kv_head, slots, this.model.cache_head_size];
  }
}

/**
 * @param {Float32Array} flat (S, V)
 * @param {number} width V
 * @returns {Float32Array[]}
 */
function rowsOf(flat, width) {
  return Array.from({ length: flat.length / width }, (_, row) => flat.subarray(row * width, (row + 1) * width));
}

const INPUTS = ["input_ids", "attention_mask", "position_ids", "num_logits_to_keep"];

/**
 * For GroupQueryAttention: past and present are one buffer for each tensor, written in place.
 *
 * The mask has zeros after the tokens there are. A step of one token reuses everything that the last one made.
 */
export class SharedCacheDecoder extends Decoder {
  /** @type {Buffer[]} */
  #caches = [];
  #capacity = 0;
  /** @type {{ inputs: ReturnType<Decoder["inputs"]>, logits: Buffer } | null} */
  #step = null;

  /**
   * @param {Session} session
   * @param {Manifest} manifest
   */
  constructor(session, manifest) {
    super(session, manifest);
    const names = [...INPUTS, ...this.cacheNames("past_key_values")];
    this.run = session.prepare(names, ["logits", ...this.cacheNames("present")]);
  }

  /**
   * @param {number[]} ids
   * @param {boolean} all
   */
  async extend(ids, all) {
    this.#reserve(this.length + ids.length);
    const once = ids.length > 1;
    const prepared = once ? this.#prepare(ids.length, all) : (this.#step ??= this.#prepare(1, false));
    this.fill(prepared.inputs, ids, all);
    const { ids: tokens, mask, positions, keep } = prepared.inputs;
    const handles = this.#caches.map((cache) => cache.handle);
    await this.run.run(
      [tokens.handle, mask.handle, positions.handle, keep.handle, ...handles],
      [prepared.logits.handle, ...handles],
    );
    this.length += ids.length;
    const logits = prepared.logits.floats;
    if (once) release(prepared);
    return rowsOf(logits, this.model.vocab_size);
  }

  /**
   * @param {number} count
   * @param {boolean} all
   */
  #prepare(count, all) {
    const logits = new Buffer(this.runtime, "float32", [1, all ? count : 1, this.model.vocab_size]);
    return { inputs: this.inputs(count, this.#capacity), logits };
  }

  /** @param {number} needed Tokens to make room for; the cache grows by copying. */
  #reserve(needed) {
    if (needed <= this.#capacity) return;
    const old = { caches: this.#caches, capacity: this.#capacity };
    this.#capacity = Math.max(inBlocks(needed), inBlocks(Math.floor(this.#capacity * GROWTH)));
    const dims = this.cacheDims(this.#capacity);
    this.#caches = this.cacheNames("present").map(() => new Buffer(this.runtime, this.cacheType, dims));
    this.#caches.forEach((cache, index) => this.#moveInto(cache, old.caches[index], old.capacity));
    if (this.#step) release(this.#step);
    this.#step = null;
  }

  /**
   * Zero a cache, and copy what an older one held, head by head.
   *
   * @param {Buffer} cache
   * @param {Buffer | undefined} old
   * @param {number} oldCapacity
   */
  #moveInto(cache, old, oldCapacity) {
    const bytes = this.runtime.view(Uint8Array, cache.address, cache.bytes).fill(0);
    if (!old) return;
    const heads = this.model.n_kv_head;
    const [from, to] = [old.bytes / heads, cache.bytes / heads];
    const used = (from / oldCapacity) * this.length;
    const source = this.runtime.view(Uint8Array, old.address, old.bytes);
    for (let head = 0; head < heads; head++) bytes.set(source.subarray(head * from, head * from + used), head * to);
    old.release();
  }
}

/** @param {{ inputs: Record<string, Buffer>, logits: Buffer }} prepared */
function release({ inputs, logits }) {
  for (const buffer of [...Object.values(inputs), logits]) buffer.release();
}

/** For decomposed attention: a run's present tensors are the next run's past, and never leave the runtime. */
export class ConcatCacheDecoder extends Decoder {
  /** @type {number[]} */
  #caches = [];

  /**
   * @param {Session} session
   * @param {Manifest} manifest
   */
  constructor(session, manifest) {
    super(session, manifest);
    const names = [...INPUTS, ...this.cacheNames("past_key_values")];
    this.run = session.prepare(names, ["logits", ...this.cacheNames("present")]);
    this.nothing = this.runtime.allocate(8);
  }

  /**
   * @param {number[]} ids
   * @param {boolean} all
   */
  async extend(ids, all) {
    const inputs = this.inputs(ids.length, this.length + ids.length);
    const logits = new Buffer(this.runtime, "float32", [1, all ? ids.length : 1, this.model.vocab_size]);
    this.fill(inputs, ids, all);
    const past = this.#caches.length ? this.#caches : this.#empty();
    const handles = [inputs.ids, inputs.mask, inputs.positions, inputs.keep].map(({ handle }) => handle);
    const [, ...present] = await this.run.run([...handles, ...past], [logits.handle, ...past.map(() => 0)]);
    this.length += ids.length;
    past.forEach((handle) => this.runtime.release(handle));
    this.#caches = present;
    const rows = rowsOf(logits.floats, this.model.vocab_size);
    release({ inputs, logits });
    return rows;
  }

  clear() {
    super.clear();
    this.#caches.forEach((handle) => this.runtime.release(handle));
    this.#caches = [];
  }

  #empty() {
    const dims = this.cacheDims(0);
    return this.cacheNames("present").map(() => this.runtime.tensor(this.cacheType, this.nothing, dims));
  }
}

/** For graphs without a cache: every run computes the whole sequence again. */
export class RecomputeDecoder extends Decoder {
  /** @type {number[]} */
  #tokens = [];

  /**
   * @param {Session} session
   * @param {Manifest} manifest
   */
  constructor(session, manifest) {
    super(session, manifest);
    this.run = session.prepare(["input_ids"], ["logits"]);
  }

  /**
   * @param {number[]} ids
   * @param {boolean} all
   */
  async extend(ids, all) {
    const tokens = [...this.#tokens, ...ids];
    const buffer = this.#fed(tokens);
    const [handle] = await this.run.run([buffer.handle], [0]);
    const { address, dims } = this.runtime.read(handle);
    const size = dims.reduce((product, dim) => product * dim, 1);
    const logits = this.runtime.view(Float32Array, address, size).slice();
    this.runtime.release(handle);
    buffer.release();
    this.#tokens = tokens;
    this.length = tokens.length;
    return rowsOf(logits, this.model.vocab_size).slice(all ? -ids.length : -1);
  }

  clear() {
    super.clear();
    this.#tokens = [];
  }

  /** @param {number[]} tokens */
  #fed(tokens) {
    const type = this.session.type("input_ids");
    const buffer = new Buffer(this.runtime, type, [1, tokens.length]);
    if (type === "int64") buffer.integers.set(tokens.map(BigInt));
    else this.runtime.view(Int32Array, buffer.address, tokens.length).set(tokens);
    return buffer;
  }
}

const FORMS = { gqa: SharedCacheDecoder, decomposed: ConcatCacheDecoder };

/**
 * Return the decoder for the form of a bundle's graph.
 *
 * @param {Session} session
 * @param {Manifest} manifest
 * @returns {Decoder}
 */
export function decoderFor(session, manifest) {
  const { layout, attention } = manifest.graph;
  const Form = layout === "plain" ? RecomputeDecoder : FORMS[attention];
  return new Form(session, manifest);
}
