// Greedy continuation by transformers.js, in Node and in browsers.

/**
 * @param transformers the module
 * @param folder       what the pipeline opens
 * @param prompts      texts; several are one batch
 * @param count        how many new tokens a prompt gets
 * @param options      of the pipeline
 * @returns rows of new ids, and their texts
 */
export async function continued(transformers, folder, prompts, count, options = {}) {
  const generator = await transformers.pipeline("text-generation", folder, options);
  const { model } = generator, generate = model.generate.bind(model);
  let rows;  // what the pipeline makes texts of
  model.generate = async (said) => {
    const made = await generate(said);
    rows = made.tolist().map((row) => row.slice(-count).map(Number));
    return made;
  };
  const started = performance.now();
  const said = await generator(prompts.length > 1 ? prompts : prompts[0], {
    max_new_tokens: count, min_new_tokens: count, do_sample: false, return_full_text: false,
  });
  const texts = (prompts.length > 1 ? said : [said]).map(([{ generated_text }]) => generated_text);
  return { ids: rows, texts, ms: performance.now() - started };
}
