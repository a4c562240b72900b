/**
 * The text as it is written, and the line below it that says how fast.
 *
 * A screen reader hears the text once it is whole: the region is busy until then. The line of figures, which
 * changes all the time, is not read out until the end.
 */

import { element } from "./dom.js";
import { counted, seconds } from "./words.js";

const REASONS = {
  eos: "the model ended the text",
  stop: "a stop text came",
  length: "all new tokens were written",
  context: "the context is full",
  cancelled: "stopped",
};

/** One answer on its way. */
export class Answer {
  #tokens = 0;
  #firstMs = 0;

  /**
   * @param {string} prompt
   * @param {{ seed: bigint, greedy: boolean, byIds: boolean }} facts
   */
  constructor(prompt, facts) {
    this.facts = facts;
    element("empty").hidden = true;
    element("given").textContent = prompt;
    element("text").textContent = "";
    element("answer").setAttribute("aria-busy", "true");
    element("status").textContent = "Reading the prompt…";
    element("said").textContent = "Writing";
    element("copy").disabled = true;
  }

  /** @param {import("../engine/generation.js").Step & { ms: number, promptTokens: number }} step */
  take(step) {
    if (step.id !== null) {
      this.#tokens++;
      if (this.#tokens === 1) this.#firstMs = step.ms;
    }
    const box = element("answer");
    const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 4;
    element("text").append(this.facts.byIds && step.id !== null ? `, ${step.id}` : step.text);
    if (atEnd) box.scrollTop = box.scrollHeight;
    if (step.reason === null) this.#tellSpeed(step.ms);
    else this.#end(step);
  }

  /** The answer failed: what was written stays. */
  abandon() {
    element("answer").setAttribute("aria-busy", "false");
    element("status").textContent = "";
  }

  /** @param {number} ms */
  #rate(ms) {
    return (1000 * (this.#tokens - 1)) / Math.max(ms - this.#firstMs, 1e-3);
  }

  /** @param {number} ms */
  #tellSpeed(ms) {
    if (this.#tokens % 8 !== 0) return; // a line that changes at every token cannot be read
    element("status").textContent = `${counted(this.#tokens)} tokens, ${this.#rate(ms).toFixed(0)} a second`;
  }

  /** @param {import("../engine/generation.js").Step & { ms: number, promptTokens: number }} step */
  #end({ ms, promptTokens, reason }) {
    const parts = [`${counted(promptTokens)} + ${counted(this.#tokens)} tokens in ${seconds(ms)}`];
    if (this.#tokens) parts.push(`first after ${seconds(this.#firstMs)}`);
    if (this.#tokens > 1) parts.push(`then ${this.#rate(ms).toFixed(0)} a second`);
    parts.push(REASONS[/** @type {keyof typeof REASONS} */ (reason)]);
    if (!this.facts.greedy) parts.push(`seed ${this.facts.seed}`);
    element("status").textContent = parts.join(" · ");
    element("said").textContent = parts.join(", ");
    element("answer").setAttribute("aria-busy", "false");
    element("copy").disabled = false;
  }
}

/** @returns {string} Prompt and continuation. */
export const wholeText = () => element("given").textContent + element("text").textContent;
