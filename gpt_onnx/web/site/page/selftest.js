/** What the self-test found, in a sentence. */

import { element, show } from "./dom.js";
import { counted } from "./words.js";

/** @param {{ done: number, all: number }} progress */
export function showTesting({ done, all }) {
  show("test-result", `Computing: ${done} of ${all} sequences…`);
}

/** @param {import("../engine/reference.js").Report} report */
export function showReport(report) {
  const percent = report.maxRatio < 0.01 ? "under 1 %" : `${(100 * report.maxRatio).toFixed(0)} %`;
  const error = `the largest error is ${report.maxError.toExponential(1)} of ${report.tolerance.toExponential(1)}, ${percent} of what is accepted`;
  const compared = `${counted(report.logits)} logits and ${counted(report.tokens)} greedy tokens`;
  const sentence = report.passed
    ? `Passed: ${compared} agree with the model in PyTorch; ${error}.`
    : report.differsAt === null
      ? `Failed: ${error}, its root mean square ${(100 * report.rmsRatio).toFixed(0)} %; use another browser or device.`
      : `Failed: greedy token ${report.differsAt} is not the one that PyTorch chose; use another browser or device.`;
  show("test-result", sentence);
  element("test-result").className = report.passed ? "passed" : "failed";
}
