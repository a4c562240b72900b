// Greedy continuation of prompts by transformers.js in Node.

import { createRequire } from "node:module";
import { answerOrders } from "./_orders.mjs";
import { continued } from "./pipeline.mjs";

const require = createRequire(`${process.argv[2]}/`);

await answerOrders(({ client, folder, texts, count, options }) => {
  const transformers = require(client);
  transformers.env.allowRemoteModels = false;
  return continued(transformers, folder, texts, count, options);
});
