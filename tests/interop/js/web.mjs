// Greedy continuation in a browser: by onnxruntime-web alone, or by transformers.js. Every path is of this server.

import { greedy } from "./greedy.mjs";
import { continued } from "./pipeline.mjs";

/**
 * @param library path of the module
 * @param folder  path of the bundle
 * @param threads how many are asked for
 * @param options further ones of the session
 * @returns rows of new ids, milliseconds of loading and of generating, and threads as they are
 */
export async function byRuntime({ library, folder, prompts, count, threads = 1, options = {} }) {
  const ort = await import(library);
  ort.env.wasm.numThreads = threads;
  const manifest = await (await fetch(`${folder}/manifest.json`)).json();
  const files = [manifest.graph.data, ...(manifest.graph.shards ?? [])];
  const externalData = files.map((name) => ({ path: name.split("/").pop(), data: `${folder}/${name}` }));
  const began = performance.now();
  const session = await ort.InferenceSession.create(`${folder}/${manifest.graph.graphs.model}`, {
    externalData, logSeverityLevel: 3, ...options,
  });
  const started = performance.now();
  const ids = await greedy(ort, session, manifest, prompts, count);
  return { ids, ms: performance.now() - started, loadMs: started - began, threads: ort.env.wasm.numThreads };
}

/**
 * @param library path of the module
 * @param wasm    path of the folder with its ONNX Runtime
 * @param bundles path of the folder that holds the bundle
 * @param name    of the bundle's folder
 * @returns rows of new ids, their texts, and milliseconds of generating
 */
export async function byPipeline({ library, wasm, bundles, name, texts, count, threads = 1, options = {} }) {
  const transformers = await import(library);
  const { env } = transformers;
  env.allowRemoteModels = false;
  env.allowLocalModels = true;
  env.localModelPath = bundles;
  env.backends.onnx.wasm.wasmPaths = wasm;
  env.backends.onnx.wasm.numThreads = threads;
  return continued(transformers, name, texts, count, options);
}
