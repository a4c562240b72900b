/**
 * The random numbers of numpy, so that a seed writes the same text here as `gpt-onnx generate --seed` does.
 *
 *     const random = childOfSeed(1n);      // numpy: default_rng(1).spawn(1)[0]
 *     random.next();                       // a double in [0, 1)
 *
 * SeedSequence turns the seed into 256 bits, PCG64 (XSL-RR, O'Neill 2014) turns those into the stream.
 */

const POOL = 4;
const INIT_A = 0x43b0d7e5;
const MULT_A = 0x931e8875;
const INIT_B = 0x8b51f9dd;
const MULT_B = 0x58f38ded;
const MIX_LEFT = 0xca01f9dd;
const MIX_RIGHT = 0x4973f715;

const MASK_64 = (1n << 64n) - 1n;
const MASK_128 = (1n << 128n) - 1n;
const PCG_MULTIPLIER = 0x2360ed051fc65da44385df649fccf645n;

/** @param {number} value */
const folded = (value) => (value ^ (value >>> 16)) >>> 0;

/**
 * Return the words of 32 bits of a number, the lowest first, at least one.
 *
 * @param {bigint} value
 * @returns {number[]}
 */
function wordsOf(value) {
  const words = [];
  for (let rest = value; rest > 0n || words.length === 0; rest >>= 32n) words.push(Number(rest & 0xffffffffn));
  return words;
}

/**
 * A hash whose constant changes with every value.
 *
 * @param {number} initial
 * @param {number} multiplier
 */
function hasher(initial, multiplier) {
  let constant = initial;
  return (/** @type {number} */ value) => {
    const mixed = value ^ constant;
    constant = Math.imul(constant, multiplier) >>> 0;
    return folded(Math.imul(mixed, constant));
  };
}

/**
 * Mix entropy into the pool of a SeedSequence.
 *
 * @param {number[]} entropy Words of 32 bits.
 * @returns {number[]} Four words.
 */
function poolOf(entropy) {
  const hash = hasher(INIT_A, MULT_A);
  const pool = Array.from({ length: POOL }, (_, index) => hash(entropy[index] ?? 0));
  const mixInto = (/** @type {number} */ target, /** @type {number} */ value) => {
    pool[target] = folded(Math.imul(MIX_LEFT, pool[target]) - Math.imul(MIX_RIGHT, hash(value)));
  };
  for (let source = 0; source < POOL; source++) {
    for (let target = 0; target < POOL; target++) if (source !== target) mixInto(target, pool[source]);
  }
  for (const word of entropy.slice(POOL)) {
    for (let target = 0; target < POOL; target++) mixInto(target, word);
  }
  return pool;
}

/**
 * Return 64-bit numbers drawn from a pool, as `SeedSequence.generate_state` gives them.
 *
 * @param {number[]} pool
 * @param {number} count
 * @returns {bigint[]}
 */
function stateOf(pool, count) {
  const hash = hasher(INIT_B, MULT_B);
  const words = Array.from({ length: 2 * count }, (_, index) => BigInt(hash(pool[index % POOL])));
  return Array.from({ length: count }, (_, index) => words[2 * index] | (words[2 * index + 1] << 32n));
}

/** A stream of numbers, PCG64. */
export class Random {
  #state;
  #increment;

  /** @param {bigint[]} seed Four numbers of 64 bits: state and sequence, the upper half first. */
  constructor(seed) {
    this.#increment = ((((seed[2] << 64n) | seed[3]) << 1n) | 1n) & MASK_128;
    this.#state = 0n;
    this.#step();
    this.#state = (this.#state + ((seed[0] << 64n) | seed[1])) & MASK_128;
    this.#step();
  }

  #step() {
    this.#state = (this.#state * PCG_MULTIPLIER + this.#increment) & MASK_128;
  }

  /** @returns {number} The next double in [0, 1), of 53 random bits. */
  next() {
    this.#step();
    const folded = (this.#state >> 64n) ^ (this.#state & MASK_64);
    const turn = this.#state >> 122n;
    const turned = ((folded >> turn) | (folded << (64n - turn))) & MASK_64;
    return Number(turned >> 11n) / 2 ** 53;
  }
}

/**
 * Return the stream of the first child of a seed: the one that `gpt-onnx generate` gives its only text.
 *
 * @param {bigint} seed At least 0.
 * @returns {Random}
 */
export function childOfSeed(seed) {
  const own = wordsOf(seed);
  while (own.length < POOL) own.push(0);
  return new Random(stateOf(poolOf([...own, 0]), 4));
}
