/**
 * What a person is told: one sentence with what was found, what was expected and the remedy.
 *
 *     throw new SiteError("The prompt is empty; write some text.");
 *
 * Every other error is a fault of this program, and is shown as one.
 */

export class SiteError extends Error {
  name = "SiteError";
}

/**
 * Run a step, and say in which step the browser failed where it does.
 *
 * @template T
 * @param {string} sentence What to say; the browser's own words follow.
 * @param {() => T | Promise<T>} step
 * @returns {Promise<T>}
 * @throws {SiteError}
 */
export async function telling(sentence, step) {
  try {
    return await step();
  } catch (error) {
    if (error instanceof SiteError) throw error;
    throw new SiteError(`${sentence} (${wordsOf(error)}).`, { cause: error });
  }
}

/**
 * Return the first line of what an error says.
 *
 * @param {unknown} error
 * @returns {string}
 */
export function wordsOf(error) {
  const words = error instanceof Error ? error.message : String(error);
  return words.split("\n")[0].replace(/[.\s]+$/, "").slice(0, 300) || "no reason given";
}
