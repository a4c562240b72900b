/** Numbers as people read them. */

/** @param {number} value */
export const counted = (value) => value.toLocaleString("en-US");

/** @param {number} bytes */
export const megabytes = (bytes) => `${(bytes / 1e6).toFixed(1)} MB`;

/**
 * @param {number} count
 * @returns {string} Such as "5.8 M" or "1.2 B".
 */
export function roughly(count) {
  const [size, letter] = count >= 1e9 ? [1e9, " B"] : count >= 1e6 ? [1e6, " M"] : count >= 1e3 ? [1e3, " k"] : [1, ""];
  return `${(count / size).toFixed(size === 1 ? 0 : 1)}${letter}`;
}

/** @param {number} ms */
export const seconds = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);
