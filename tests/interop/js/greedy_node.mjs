// Greedy continuation of prompts by onnxruntime-node: a task from stdin, rows of ids to stdout.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { greedy } from "./greedy.mjs";

const require = createRequire(`${process.argv[2]}/`);
const { client, folder, prompts, count } = JSON.parse(readFileSync(0, "utf8"));
const ort = require(client);
const manifest = JSON.parse(readFileSync(`${folder}/manifest.json`, "utf8"));
const options = { intraOpNumThreads: 1, logSeverityLevel: 3 };
const session = await ort.InferenceSession.create(`${folder}/${manifest.graph.graphs.model}`, options);
const started = performance.now();
const ids = await greedy(ort, session, manifest, prompts, count);
console.log(JSON.stringify({ ids, ms: performance.now() - started }));
process.exit(0);
