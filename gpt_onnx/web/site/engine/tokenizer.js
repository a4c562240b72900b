/**
 * Text to token ids and back: @huggingface/tokenizers under the rules of gpt_onnx.runtime.
 *
 *     const tokenizer = new Tokenizer(values, controlIds, Library);
 *     tokenizer.encode("My fellow citizens,");
 *
 * A user's text never becomes a control token: what looks like one is encoded letter by letter, and where the
 * tokenizer cannot do that the text is refused. Padding and truncation of the file are dropped.
 */

import { SiteError, wordsOf } from "./errors.js";

const CONTROL = /^<\|[^<>|\s]{1,64}\|>$/;
const MAX_TEXT = 2_000_000; // characters

/**
 * The tokens that a post-processor puts before a text.
 *
 * @param {any} processor
 * @returns {string[]}
 */
function templatePrefix(processor) {
  if (!processor || processor.type === "ByteLevel") return [];
  if (processor.type === "Sequence") return processor.processors.flatMap(templatePrefix);
  if (processor.type !== "TemplateProcessing") throw new Error(`its post-processor is ${processor.type}`);
  const end = processor.single.findIndex((/** @type {any} */ piece) => !("SpecialToken" in piece));
  return processor.single.slice(0, end < 0 ? undefined : end).map((/** @type {any} */ piece) => piece.SpecialToken.id);
}

/**
 * @param {any} model
 * @returns {Map<string, number>} Token to id.
 */
function vocabularyOf(model) {
  if (Array.isArray(model.vocab)) return new Map(model.vocab.map(([token], id) => [token, id]));
  return new Map(Object.entries(model.vocab));
}

/**
 * @param {any} model
 * @param {Map<string, number>} vocabulary
 */
function unknownId(model, vocabulary) {
  return model.unk_id ?? vocabulary.get(model.unk_token) ?? null;
}

/** A bundle's tokenizer. */
export class Tokenizer {
  #library;
  /** @type {Map<number, string>} */
  #tokens = new Map();
  /** @type {Map<string, number>} */
  #ids = new Map();
  #control = new Set();
  #unknown;

  /**
   * @param {any} values The object of a tokenizer.json.
   * @param {number[]} controlIds Ids that are control tokens whether the file marks them or not.
   * @param {new (values: object, settings: object) => any} Library
   * @throws {SiteError} If the library cannot read it.
   */
  constructor(values, controlIds, Library) {
    try {
      const { type } = values.model;
      const vocabulary = vocabularyOf(values.model);
      const isControl = (/** @type {any} */ token) =>
        token.special || controlIds.includes(token.id) || CONTROL.test(token.content);
      const added = values.added_tokens ?? [];
      for (const token of added) {
        vocabulary.set(token.content, token.id);
        if (isControl(token)) this.#control.add(token.id);
      }
      this.#ids = vocabulary;
      this.#tokens = new Map(Array.from(vocabulary, ([token, id]) => [id, token]));
      this.#unknown = unknownId(values.model, vocabulary);
      this.byteLevel = values.decoder?.type === "ByteLevel";
      const texts = added.filter((/** @type {any} */ token) => !isControl(token));
      const plain = { ...values, added_tokens: texts, padding: null, truncation: null, post_processor: null };
      this.#library = new Library(plain, { clean_up_tokenization_spaces: false });
      this.prefix = templatePrefix(values.post_processor).map((token) => this.#known(token, type));
    } catch (error) {
      throw new SiteError(
        `The tokenizer cannot be read by this page's library (${wordsOf(error)}); give token ids instead.`,
        { cause: error },
      );
    }
  }

  /**
   * @param {string} token
   * @param {string} type
   */
  #known(token, type) {
    const id = this.#ids.get(token);
    if (id === undefined) throw new Error(`the ${type} vocabulary lacks ${token}`);
    return id;
  }

  /**
   * Return the ids of a text, the template's prefix before them.
   *
   * @param {string} text
   * @returns {number[]}
   * @throws {SiteError} If it is too long, or cannot be expressed without a control token.
   */
  encode(text) {
    if (text.length > MAX_TEXT) {
      throw new SiteError(`The text has ${text.length} characters, above the limit of ${MAX_TEXT}; shorten it.`);
    }
    /** @type {number[]} */
    const ids = text ? this.#library.encode(text, { add_special_tokens: false }).ids : [];
    const control = ids.find((id) => this.#control.has(id) && id !== this.#unknown);
    if (control !== undefined) {
      const token = this.#tokens.get(control);
      throw new SiteError(`The text holds ${token}, which this tokenizer reads as a control token; take it out.`);
    }
    return [...this.prefix, ...ids];
  }

  /**
   * @param {number[]} ids
   * @returns {string} Their text; control tokens have none.
   */
  decode(ids) {
    const known = ids.filter((id) => this.textToken(id) !== null);
    return known.length ? this.#library.decode(known, { clean_up_tokenization_spaces: false }) : "";
  }

  /**
   * @param {number} id
   * @returns {string | null} How a token is written; null for control tokens and ids without one.
   */
  textToken(id) {
    return this.#control.has(id) ? null : (this.#tokens.get(id) ?? null);
  }

  /** @param {string} token */
  idOf(token) {
    return this.#ids.get(token) ?? null;
  }

  /**
   * @param {number} vocabSize
   * @returns {Uint8Array | null} For each id whether it has a token; null where all have one.
   */
  allowed(vocabSize) {
    const mask = Uint8Array.from({ length: vocabSize }, (_, id) => Number(this.#tokens.has(id)));
    return mask.includes(0) ? mask : null;
  }
}

/**
 * Hold the tokenizer to ids that the Python library made of the same texts.
 *
 * @param {Tokenizer} tokenizer
 * @param {[string, number[]][]} samples
 * @throws {SiteError} If one differs: wrong ids would give wrong text, in silence.
 */
export function checkTokenizer(tokenizer, samples) {
  const differs = samples.find(([text, ids]) => String(tokenizer.encode(text)) !== String(ids));
  if (differs) {
    throw new SiteError(
      `This page's tokenizer library splits ${JSON.stringify(differs[0].slice(0, 40))} in another way than ` +
        "the bundle's; give token ids instead.",
    );
  }
}
