// Greedy continuation by transformers.js in Node: a task from stdin, ids and texts to stdout.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { continued } from "./pipeline.mjs";

const require = createRequire(`${process.argv[2]}/`);
const { client, folder, texts, count, options } = JSON.parse(readFileSync(0, "utf8"));
const transformers = require(client);
transformers.env.allowRemoteModels = false;
console.log(JSON.stringify(await continued(transformers, folder, texts, count, options)));
process.exit(0);
