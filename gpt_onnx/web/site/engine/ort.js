/**
 * ONNX Runtime's WebAssembly build, called directly: memory, tensors and sessions by their addresses.
 *
 *     const runtime = await Runtime.start(factory, { wasm, threads: 1 });
 *     const address = runtime.allocate(4 * 10);
 *     const tensor = runtime.tensor("float32", address, 40, [1, 10]);
 *
 * onnxruntime-web's own API copies every output out of the runtime's memory and every input back into it, the
 * whole cache at each token, and takes no input that has a default. Here a cache is memory that stays where it
 * is: past and present name the same tensor. The functions are those of onnxruntime-web's wasm module, which
 * its own JavaScript calls; its version is pinned, and browser tests run on it.
 */

import { SiteError } from "./errors.js";

const POINTER = 4; // bytes: the build is wasm32
const LOG_ERRORS = 3;
const ALL_OPTIMISATIONS = 99;
const IN_MEMORY = 1; // a tensor's place: the CPU's memory

/** ONNX's number of an element type, and the bytes of one element. */
export const TYPES = {
  float32: { number: 1, bytes: 4 },
  int32: { number: 6, bytes: 4 },
  int64: { number: 7, bytes: 8 },
  float16: { number: 10, bytes: 2 },
};

/** @typedef {keyof typeof TYPES} ElementType */

/** A started runtime: one a worker, as its memory is never given back. */
export class Runtime {
  /** @param {any} module What Emscripten made. */
  constructor(module) {
    this.module = module;
  }

  /**
   * Start the runtime.
   *
   * @param {(settings: object) => Promise<any>} factory The default export of the wasm module's JavaScript.
   * @param {{ wasm: ArrayBuffer | Uint8Array, threads: number }} settings
   * @returns {Promise<Runtime>}
   */
  static async start(factory, { wasm, threads }) {
    const module = await factory({ wasmBinary: wasm, numThreads: threads, print: quiet, printErr: quiet });
    const runtime = new Runtime(module);
    runtime.check(module._OrtInit(threads, LOG_ERRORS));
    return runtime;
  }

  /**
   * Reserve memory that is never moved; `free` gives it back.
   *
   * @param {number} bytes
   * @returns {number} Its address.
   */
  allocate(bytes) {
    const address = this.module._malloc(Math.max(bytes, 8)) >>> 0;
    if (!address) {
      throw new SiteError(
        `The browser gave no ${Math.ceil(bytes / 1e6)} MB of memory; close other pages, or take a smaller model.`,
      );
    }
    return address;
  }

  /** @param {number} address */
  free(address) {
    this.module._free(address);
  }

  /**
   * Return a view on memory; good until the next allocation or run, either of which may move it.
   *
   * @template {ArrayBufferView} T
   * @param {new (buffer: ArrayBuffer, address: number, length: number) => T} Kind
   * @param {number} address
   * @param {number} length Elements.
   * @returns {T}
   */
  view(Kind, address, length) {
    return new Kind(this.module.HEAPU8.buffer, address, length);
  }

  /**
   * Copy bytes into memory of their own.
   *
   * @param {Uint8Array} bytes
   * @returns {number}
   */
  copyIn(bytes) {
    const address = this.allocate(bytes.length);
    this.module.HEAPU8.set(bytes, address);
    return address;
  }

  /**
   * Make a tensor over memory, which must outlive it.
   *
   * @param {ElementType} type
   * @param {number} address
   * @param {number[]} dims
   * @returns {number} Its handle.
   */
  tensor(type, address, dims) {
    const { number, bytes } = TYPES[type];
    const size = dims.reduce((product, dim) => product * dim, bytes);
    return this.onStack(dims.length, (at) => {
      dims.forEach((dim, index) => this.module.setValue(at + index * POINTER, dim, "i32"));
      return this.made(this.module._OrtCreateTensor(number, address, size, at, dims.length, IN_MEMORY));
    });
  }

  /** @param {number} handle Of a tensor, whose memory stays unless a run made it. */
  release(handle) {
    this.module._OrtReleaseTensor(handle);
  }

  /**
   * Return where a tensor's data are, and its dims.
   *
   * @param {number} handle
   * @returns {{ address: number, dims: number[] }}
   */
  read(handle) {
    return this.onStack(4, (at) => {
      this.check(this.module._OrtGetTensorData(handle, at, at + POINTER, at + 2 * POINTER, at + 3 * POINTER));
      const [, address, dims, rank] = this.pointers(at, 4);
      const found = this.pointers(dims, rank);
      this.module._OrtFree(dims);
      return { address, dims: found };
    });
  }

  /**
   * Call with the address of so many pointers on the stack.
   *
   * @template T
   * @param {number} count
   * @param {(address: number) => T} act
   * @returns {T}
   */
  onStack(count, act) {
    const before = this.module.stackSave();
    try {
      return act(this.module.stackAlloc(Math.max(count, 1) * POINTER));
    } finally {
      this.module.stackRestore(before);
    }
  }

  /**
   * @param {number} address
   * @param {number} count
   * @returns {number[]} What stands there.
   */
  pointers(address, count) {
    return Array.from(this.view(Uint32Array, address, count));
  }

  /**
   * Write a text that stays.
   *
   * @param {string} text
   * @returns {number} Its address.
   */
  text(text) {
    const length = this.module.lengthBytesUTF8(text) + 1;
    const address = this.allocate(length);
    this.module.stringToUTF8(text, address, length);
    return address;
  }

  /**
   * @param {number} handle
   * @returns {number} The same, which is not 0.
   */
  made(handle) {
    if (!handle) this.check(1);
    return handle;
  }

  /**
   * @param {number} code What a call returned.
   * @throws {SiteError} With ONNX Runtime's first line, if it is not 0.
   */
  check(code) {
    if (code === 0) return;
    const words = this.onStack(2, (at) => {
      this.module._OrtGetLastError(at, at + POINTER);
      const [, message] = this.pointers(at, 2);
      return message ? this.module.UTF8ToString(message) : "no reason given";
    });
    throw new SiteError(`ONNX Runtime refuses: ${words.split("\n")[0].slice(0, 300)}.`);
  }
}

function quiet() {}

/** One graph, loaded. */
export class Session {
  #names = new Map();

  /**
   * @param {Runtime} runtime
   * @param {number} handle
   */
  constructor(runtime, handle) {
    this.runtime = runtime;
    this.handle = handle;
    this.types = this.#readTypes();
  }

  /**
   * Load a graph.
   *
   * @param {Runtime} runtime
   * @param {Uint8Array} graph
   * @param {Map<string, Uint8Array>} data Files of weights, by the names that the graph calls them.
   * @param {Record<string, string>} settings Entries of the session's configuration.
   * @returns {Promise<Session>}
   */
  static async load(runtime, graph, data, settings = {}) {
    const { module } = runtime;
    for (const [name, bytes] of data) module.mountExternalData(name, bytes);
    const options = runtime.made(
      module._OrtCreateSessionOptions(ALL_OPTIMISATIONS, true, false, 0, false, 0, 0, LOG_ERRORS, 0, 0),
    );
    for (const [name, value] of Object.entries(settings)) {
      runtime.check(module._OrtAddSessionConfigEntry(options, runtime.text(name), runtime.text(value)));
    }
    const address = runtime.copyIn(graph);
    try {
      return new Session(runtime, runtime.made(await module._OrtCreateSession(address, graph.length, options)));
    } finally {
      runtime.free(address);
      module._OrtReleaseSessionOptions(options);
      module.unmountExternalData();
    }
  }

  /**
   * Prepare a run with these inputs and outputs, whose handles stand in memory and may be changed.
   *
   * @param {string[]} inputs
   * @param {string[]} outputs
   * @returns {Run}
   */
  prepare(inputs, outputs) {
    return new Run(this, inputs, outputs);
  }

  /**
   * @param {string} name
   * @returns {ElementType}
   */
  type(name) {
    const type = this.types.get(name);
    if (!type) throw new SiteError(`The graph has no ${name}; export the bundle again.`);
    return type;
  }

  /**
   * @param {string} name
   * @returns {number} The address of the name, written once.
   */
  name(name) {
    if (!this.#names.has(name)) this.#names.set(name, this.runtime.text(name));
    return this.#names.get(name);
  }

  /** @returns {Map<string, ElementType>} Of each input and output. */
  #readTypes() {
    const { runtime } = this;
    const [inputs, outputs] = runtime.onStack(2, (at) => {
      runtime.check(runtime.module._OrtGetInputOutputCount(this.handle, at, at + POINTER));
      return runtime.pointers(at, 2);
    });
    return new Map(Array.from({ length: inputs + outputs }, (_, index) => this.#readType(index)));
  }

  /**
   * @param {number} index
   * @returns {[string, ElementType]}
   */
  #readType(index) {
    const { runtime } = this;
    const [name, metadata] = runtime.onStack(2, (at) => {
      runtime.check(runtime.module._OrtGetInputOutputMetadata(this.handle, index, at, at + POINTER));
      return runtime.pointers(at, 2);
    });
    const number = runtime.view(Int32Array, metadata, 1)[0];
    const found = Object.entries(TYPES).find(([, type]) => type.number === number);
    const text = runtime.module.UTF8ToString(name);
    runtime.module._OrtFree(name);
    runtime.module._OrtFree(metadata);
    if (!found) throw new SiteError(`The graph's ${text} is of element type ${number}, which is not known here.`);
    return [text, /** @type {ElementType} */ (found[0])];
  }
}

/** The arguments of a run, laid out once. */
export class Run {
  #layout;

  /**
   * @param {Session} session
   * @param {string[]} inputs
   * @param {string[]} outputs
   */
  constructor(session, inputs, outputs) {
    this.session = session;
    this.inputs = inputs;
    this.outputs = outputs;
    const size = 2 * (inputs.length + outputs.length) * POINTER;
    const start = session.runtime.allocate(size);
    const [inputNames, inputValues, outputNames, outputValues] = [
      start,
      start + inputs.length * POINTER,
      start + 2 * inputs.length * POINTER,
      start + (2 * inputs.length + outputs.length) * POINTER,
    ];
    this.#layout = { start, inputNames, inputValues, outputNames, outputValues };
    this.#write(inputNames, inputs.map((name) => session.name(name)));
    this.#write(outputNames, outputs.map((name) => session.name(name)));
  }

  /**
   * Compute.
   *
   * @param {number[]} inputs Handles, in the order of the names.
   * @param {number[]} outputs Handles of tensors to write into; 0 where the runtime makes one.
   * @returns {Promise<number[]>} Handles of the outputs.
   */
  async run(inputs, outputs) {
    const { runtime, handle } = this.session;
    const { inputNames, inputValues, outputNames, outputValues } = this.#layout;
    this.#write(inputValues, inputs);
    this.#write(outputValues, outputs);
    const given = [inputNames, inputValues, inputs.length];
    const taken = [outputNames, outputs.length, outputValues];
    runtime.check(await runtime.module._OrtRun(handle, ...given, ...taken, 0));
    return runtime.pointers(outputValues, outputs.length);
  }

  release() {
    this.session.runtime.free(this.#layout.start);
  }

  /**
   * @param {number} address
   * @param {number[]} values
   */
  #write(address, values) {
    this.session.runtime.view(Uint32Array, address, values.length).set(values);
  }
}
