// Greedy continuation of prompts by onnxruntime-node.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { answerOrders } from "./_orders.mjs";
import { greedy } from "./greedy.mjs";

const require = createRequire(`${process.argv[2]}/`);
const options = { intraOpNumThreads: 1, logSeverityLevel: 3 };

await answerOrders(async ({ client, folder, prompts, count }) => {
  const ort = require(client);
  const manifest = JSON.parse(readFileSync(`${folder}/manifest.json`, "utf8"));
  const session = await ort.InferenceSession.create(`${folder}/${manifest.graph.graphs.model}`, options);
  return { ids: await greedy(ort, session, manifest, prompts, count) };
});
