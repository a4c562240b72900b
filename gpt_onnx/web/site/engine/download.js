/**
 * The files of this site: fetched with progress, held to their sizes and SHA-256, and kept for later visits.
 *
 *     const files = await Files.open(new URL("./", location.href), (done, total) => show(done, total));
 *     const bytes = await files.bytes("bundle/onnx/model.onnx_data");
 *
 * `site.json` lists every file; those of the bundle with what its manifest says. A kept file is stored under its
 * hash, so that a new version of the site fetches only what changed, and is checked again when it is read.
 */

import { SiteError, telling } from "./errors.js";
import { cacheName, keyOf } from "./kept.js";

/** @typedef {{ size: number, sha256: string }} Entry */

const HEX = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, "0"));

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function sha256(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (byte) => HEX[byte]).join("");
}

/** @param {number} bytes */
const counted = (bytes) => bytes.toLocaleString("en-US");

/** The files of a site, by their paths. */
export class Files {
  /** @type {Cache | null} */
  #kept = null;
  /** Bytes so far. */
  done = 0;

  /**
   * @param {URL} base The site's folder.
   * @param {object} list What site.json holds.
   * @param {(done: number) => void} progress Told bytes fetched so far.
   */
  constructor(base, list, progress) {
    this.base = base;
    this.list = list;
    this.progress = progress;
  }

  /**
   * Read the list of files.
   *
   * @param {URL} base
   * @param {(done: number) => void} [progress]
   * @returns {Promise<Files>}
   */
  static async open(base, progress = () => {}) {
    if (!globalThis.crypto?.subtle) {
      throw new SiteError("Files cannot be checked on a page of plain http; open it by https, or from localhost.");
    }
    const list = await telling("site.json cannot be read; load the page again", async () => {
      const response = await fetch(new URL("site.json", base));
      if (!response.ok) throw new Error(`HTTP ${response.status}`);
      return response.json();
    });
    const files = new Files(base, list, progress);
    files.#kept = await globalThis.caches?.open(cacheName(base.href)).catch(() => null);
    return files;
  }

  /** @param {string} path */
  has(path) {
    return path in this.list.files;
  }

  /**
   * @param {string[]} paths
   * @returns {number} Their bytes in all.
   */
  sizeOf(paths) {
    return paths.reduce((sum, path) => sum + this.entry(path).size, 0);
  }

  /**
   * @param {string} path
   * @returns {Entry}
   */
  entry(path) {
    if (!this.has(path)) throw new SiteError(`This site has no file ${path}; build it again with gpt-onnx web.`);
    return this.list.files[path];
  }

  /**
   * @param {string[]} paths
   * @returns {Promise<boolean>} Whether all of them are here from an earlier visit.
   */
  async haveKept(paths) {
    const found = await Promise.all(paths.map((path) => this.#kept?.match(this.#key(path))));
    return found.every(Boolean);
  }

  /** @param {string} path */
  #key(path) {
    return keyOf(new URL(path, this.base).href, this.entry(path).sha256);
  }

  /**
   * Return a file's content, which is what the list promises.
   *
   * @param {string} path
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  async bytes(path) {
    const entry = this.entry(path);
    const key = this.#key(path);
    const kept = await this.#kept?.match(key);
    const found = kept && new Uint8Array(await kept.arrayBuffer());
    if (found && (await sha256(found)) === entry.sha256) {
      this.#tell(entry.size);
      return found;
    }
    const bytes = await this.#fetched(path, entry);
    await this.#kept?.put(key, new Response(bytes)).catch(() => {}); // a full disk: not kept, and no harm done
    return bytes;
  }

  /** @param {string} path */
  async json(path) {
    const bytes = await this.bytes(path);
    return telling(`${path} is no JSON; export the bundle again`, () => JSON.parse(new TextDecoder().decode(bytes)));
  }

  /**
   * @param {string} path
   * @param {Entry} entry
   * @returns {Promise<Uint8Array<ArrayBuffer>>}
   */
  async #fetched(path, entry) {
    const response = await telling(`${path} cannot be fetched; see that you are online, and load the page again`, () =>
      fetch(new URL(path, this.base)),
    );
    if (!response.ok) {
      throw new SiteError(`${path} cannot be fetched: the server answers ${response.status}; publish the whole site.`);
    }
    const bytes = new Uint8Array(entry.size);
    const size = await this.#read(response, bytes);
    if (size !== entry.size) {
      const found = size > entry.size ? `more than ${counted(entry.size)}` : `${counted(size)} of ${counted(entry.size)}`;
      throw new SiteError(`${path} came with ${found} bytes; load the page again, or publish the whole site.`);
    }
    if ((await sha256(bytes)) !== entry.sha256) {
      throw new SiteError(`${path} is damaged: its SHA-256 is not the manifest's; publish the whole site again.`);
    }
    return bytes;
  }

  /**
   * Read a response into place.
   *
   * @param {Response} response
   * @param {Uint8Array} target
   * @returns {Promise<number>} How many bytes came, or one more than fit.
   */
  async #read(response, target) {
    const reader = /** @type {ReadableStream<Uint8Array>} */ (response.body).getReader();
    let size = 0;
    for (;;) {
      const { done, value } = await reader.read().catch(() => ({ done: true, value: undefined })); // broken off
      if (done || !value) return size;
      if (size + value.length > target.length) {
        await reader.cancel();
        return target.length + 1;
      }
      target.set(value, size);
      size += value.length;
      this.#tell(value.length);
    }
  }

  /** @param {number} bytes */
  #tell(bytes) {
    this.done += bytes;
    this.progress(this.done);
  }
}
