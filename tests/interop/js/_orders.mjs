// Orders from stdin, a line of JSON each, and their answers on stdout.

import { createInterface } from "node:readline";

/** @param answer returns what is made of an order; where it throws, the order is answered with "error" */
export async function answerOrders(answer) {
  console.log = console.info = console.warn = console.error; // what libraries say is no answer
  for await (const line of createInterface({ input: process.stdin })) {
    let made;
    try {
      made = await answer(JSON.parse(line));
    } catch (error) {
      made = { error: String(error) };
    }
    process.stdout.write(`${JSON.stringify(made)}\n`);
  }
  process.exit(0);
}
