/**
 * Text from token ids, piece by piece: no character is split, and no part of a stop text is shown.
 *
 *     const stream = new TextStream(detokenizer, ["\n\n"]);
 *     for (const id of ids) show(stream.push(id));
 *     show(stream.flush());
 *
 * The pieces joined are the whole decoded text up to the first stop text, as in gpt_onnx.runtime.
 */

/**
 * Turns ids into text as far as it is settled.
 *
 * @typedef {object} Detokenizer
 * @property {(id: number) => string} push Takes one id; returns the text that no later id can change.
 * @property {() => string} flush Returns the rest, once there are no more ids.
 */

/**
 * What detokenizers need of a tokenizer.
 *
 * @typedef {object} Vocabulary
 * @property {(id: number) => string | null} textToken How a token is written; null for control tokens and holes.
 * @property {(ids: number[]) => string} decode The text of ids.
 * @property {boolean} byteLevel Whether a token is bytes, written in the characters of GPT-2.
 */

const MAX_CONTEXT = 64; // ids: the text of a token depends on its near neighbours at most
const BYTE_TOKEN = /^<0x[0-9A-Fa-f]{2}>$/;

/**
 * Return the byte that each character of a byte-level vocabulary stands for (GPT-2's table).
 *
 * @returns {Map<string, number>}
 */
export function byteOfCharacter() {
  const isPrintable = (/** @type {number} */ byte) =>
    (byte >= 0x21 && byte < 0x7f) || (byte >= 0xa1 && byte < 0xad) || byte >= 0xae;
  const table = new Map();
  let moved = 0;
  for (let byte = 0; byte < 256; byte++) {
    table.set(String.fromCharCode(isPrintable(byte) ? byte : 256 + moved++), byte);
  }
  return table;
}

const BYTES = byteOfCharacter();

/** For byte-level vocabularies: bytes are kept back until they are a whole character. */
export class ByteDetokenizer {
  #decoder = new TextDecoder("utf-8", { ignoreBOM: true });

  /**
   * @param {Vocabulary} vocabulary
   * @param {number[]} context Ids whose text is taken as shown; they may end within a character.
   */
  constructor(vocabulary, context) {
    this.vocabulary = vocabulary;
    for (const id of context) this.push(id);
  }

  /** @param {number} id */
  push(id) {
    const token = this.vocabulary.textToken(id);
    return token === null ? "" : this.#decoder.decode(bytesOf(token), { stream: true });
  }

  flush() {
    return this.#decoder.decode();
  }
}

/**
 * @param {string} token
 * @returns {Uint8Array} Its bytes; an added token is written as it is.
 */
function bytesOf(token) {
  const bytes = [...token].map((character) => BYTES.get(character));
  return bytes.includes(undefined) ? new TextEncoder().encode(token) : Uint8Array.from(/** @type {number[]} */ (bytes));
}

/** For all other vocabularies: decodes everything again and returns what was added. */
export class WholeDetokenizer {
  #ids;
  #shown;

  /**
   * @param {Vocabulary} vocabulary
   * @param {number[]} context
   */
  constructor(vocabulary, context) {
    this.vocabulary = vocabulary;
    this.#ids = context.slice(-MAX_CONTEXT);
    this.#shown = vocabulary.decode(this.#ids).length;
  }

  /** @param {number} id */
  push(id) {
    const token = this.vocabulary.textToken(id);
    if (token === null) return "";
    this.#ids.push(id);
    if (BYTE_TOKEN.test(token)) return ""; // a later byte may make the whole run of bytes invalid
    return this.#show(this.vocabulary.decode(this.#ids).replace(/\ufffd+$/, ""));
  }

  flush() {
    return this.#show(this.vocabulary.decode(this.#ids));
  }

  /** @param {string} text */
  #show(text) {
    const piece = text.slice(this.#shown);
    this.#shown += piece.length;
    return piece;
  }
}

/**
 * @param {Vocabulary} vocabulary
 * @param {number[]} context
 * @returns {Detokenizer} The one that fits the vocabulary.
 */
export function detokenizer(vocabulary, context) {
  return new (vocabulary.byteLevel ? ByteDetokenizer : WholeDetokenizer)(vocabulary, context);
}

/** Cuts a text at the first stop text, and keeps back what may yet become one. */
export class StopTexts {
  stopped = false;
  #kept = "";

  /** @param {string[]} stop None of them empty. */
  constructor(stop) {
    this.stop = stop;
  }

  /**
   * Take a piece and return what can be shown; nothing more once `stopped`.
   *
   * @param {string} piece
   */
  push(piece) {
    if (this.stopped) return "";
    const text = this.#kept + piece;
    const found = this.stop.map((stop) => [text.indexOf(stop), stop.length]).filter(([at]) => at >= 0);
    if (found.length) {
      this.stopped = true;
      this.#kept = "";
      found.sort(([at, length], [at2, length2]) => at + length - (at2 + length2) || at - at2);
      return text.slice(0, found[0][0]);
    }
    const kept = Math.max(0, ...this.stop.map((stop) => overlap(text, stop)));
    this.#kept = text.slice(text.length - kept);
    return text.slice(0, text.length - kept);
  }

  flush() {
    const kept = this.#kept;
    this.#kept = "";
    return kept;
  }
}

/**
 * Return the length of the longest end of `text` with which `stop` begins but is not complete.
 *
 * @param {string} text
 * @param {string} stop
 */
function overlap(text, stop) {
  for (let length = Math.min(text.length, stop.length - 1); length > 0; length--) {
    if (text.endsWith(stop.slice(0, length))) return length;
  }
  return 0;
}

/** Ids in, text out: a detokenizer, then the stop texts. */
export class TextStream {
  #detokenizer;
  #stop;

  /**
   * @param {Detokenizer} detokenizer
   * @param {string[]} stop
   */
  constructor(detokenizer, stop) {
    this.#detokenizer = detokenizer;
    this.#stop = new StopTexts(stop);
  }

  get stopped() {
    return this.#stop.stopped;
  }

  /** @param {number} id */
  push(id) {
    return this.#stop.push(this.#detokenizer.push(id));
  }

  flush() {
    return this.#stop.push(this.#detokenizer.flush()) + this.#stop.flush();
  }
}
