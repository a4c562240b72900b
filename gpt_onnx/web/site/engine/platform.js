/** What this browser can do: SIMD, threads, unpacking. */

import { SiteError } from "./errors.js";

/** A module of one function that splats a vector: valid where there is SIMD. */
const SIMD = [
  ...[0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11],
];
const MOST_THREADS = 8;

/** @returns {boolean} Whether WebAssembly has vectors. */
export function hasSimd() {
  return typeof WebAssembly === "object" && WebAssembly.validate(Uint8Array.from(SIMD));
}

/**
 * Return how many threads to use: the cores, where memory may be shared between threads.
 *
 * @param {number} [wanted]
 * @returns {number}
 */
export function threadCount(wanted) {
  if (!globalThis.crossOriginIsolated) return 1;
  return Math.max(1, Math.min(wanted ?? navigator.hardwareConcurrency ?? 1, MOST_THREADS));
}

/**
 * @param {Uint8Array<ArrayBuffer>} packed What gzip made.
 * @returns {Promise<ArrayBuffer>}
 */
export function unpacked(packed) {
  if (typeof DecompressionStream === "undefined") {
    throw new SiteError("This browser cannot unpack gzip, which the page needs; use one of 2023 or newer.");
  }
  return new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}
