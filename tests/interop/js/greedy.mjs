// Greedy continuation with nothing but ONNX Runtime: the same lines for onnxruntime-node and onnxruntime-web.

/** What holds float16: onnxruntime-web 1.20 takes no other where it is known. */
const Halves = globalThis.Float16Array ?? Uint16Array;

/** Index of the largest of some numbers, the first where several are. */
const best = (row) => row.reduce((at, value, place) => (value > row[at] ? place : at), 0);

/**
 * Continue prompts of one length, or of several with zeros on the right.
 *
 * @param ort      the module of ONNX Runtime
 * @param session  of onnx/model.onnx
 * @param manifest what manifest.json says
 * @param prompts  rows of ids
 * @param count    how many new tokens a row gets
 * @returns rows of new ids
 */
export async function greedy(ort, session, manifest, prompts, count) {
  const { n_layer, n_kv_head, cache_head_size, vocab_size } = manifest.model;
  const kind = manifest.precision === "fp16" ? "float16" : "float32";
  const rows = prompts.length, longest = Math.max(...prompts.map((ids) => ids.length));
  const int64 = (values, width) => new ort.Tensor("int64", BigInt64Array.from(values.flat(), BigInt), [rows, width]);
  const empty = () => new ort.Tensor(kind, kind === "float16" ? new Halves(0) : new Float32Array(0), [rows, n_kv_head, 0, cache_head_size]);
  const filled = (row, size, value) => row.concat(Array(size - row.length).fill(value));

  let ids = prompts.map((row) => filled(row, longest, 0));
  let mask = prompts.map((row) => filled(row.map(() => 1), longest, 0));
  let positions = prompts.map(() => [...Array(longest).keys()]);
  let last = prompts.map((row) => row.length - 1);  // where each row's next token is decided
  const feeds = {}, made = prompts.map(() => []);
  for (let i = 0; i < n_layer; i++) {
    for (const part of ["key", "value"]) feeds[`past_key_values.${i}.${part}`] = empty();
  }
  for (let step = 0; step < count; step++) {
    feeds.input_ids = int64(ids, ids[0].length);
    feeds.attention_mask = int64(mask, mask[0].length);
    feeds.position_ids = int64(positions, positions[0].length);
    const results = await session.run(feeds);
    const logits = results.logits.data, width = ids[0].length;
    ids = last.map((place, row) => [best(logits.subarray((row * width + place) * vocab_size).subarray(0, vocab_size))]);
    ids.forEach(([id], row) => made[row].push(id));
    for (const name of session.outputNames) {
      if (name.startsWith("present.")) feeds[name.replace("present", "past_key_values")] = results[name];
    }
    positions = made.map((row, number) => [prompts[number].length + row.length - 1]);
    mask = mask.map((row) => [...row, 1]);
    last = prompts.map(() => 0);
  }
  return made;
}
