/**
 * A reader of safetensors: eight bytes with the header's length, the header (JSON), the data.
 *
 *     const tensors = parseSafetensors(bytes);
 *     tensors.get("greedy.tokens").data;          // BigInt64Array
 */

import { SiteError } from "./errors.js";

const KINDS = { I64: BigInt64Array, F64: Float64Array };

/** @typedef {{ shape: number[], data: BigInt64Array | Float64Array }} Tensor */

/**
 * @param {Uint8Array} bytes
 * @returns {Map<string, Tensor>}
 * @throws {SiteError} If anything in it is not as it should be.
 */
export function parseSafetensors(bytes) {
  try {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const start = 8 + Number(view.getBigUint64(0, true));
    if (start > bytes.length) throw new Error("it is truncated");
    const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, start)));
    delete header.__metadata__;
    const data = bytes.subarray(start);
    return new Map(Object.entries(header).map(([name, entry]) => [name, tensorOf(name, entry, data)]));
  } catch (error) {
    throw new SiteError(`reference.safetensors cannot be read (${/** @type {Error} */ (error).message}).`);
  }
}

/**
 * @param {string} name
 * @param {any} entry
 * @param {Uint8Array} data
 * @returns {Tensor}
 */
function tensorOf(name, { dtype, shape, data_offsets: [begin, end] }, data) {
  const Kind = KINDS[dtype];
  const size = shape.reduce((/** @type {number} */ product, /** @type {number} */ dim) => product * dim, 8);
  if (!Kind || end > data.length || end - begin !== size) throw new Error(`${name} does not fit its bytes`);
  return { shape, data: new Kind(data.slice(begin, end).buffer) };
}
