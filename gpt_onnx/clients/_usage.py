"""The paragraphs of a bundle's README, one a client; {graph} is the path of its first graph.

docs/clients.md has a whole program for each, and tests run those.
"""

from __future__ import annotations

DYNAMIC = """\
With ONNX Runtime alone, in any of its languages: feed `input_ids`, `attention_mask`, `position_ids` (int64)
and the cache `past_key_values.N.key` and `.value`, empty at first; take `logits` and feed the `present.*`
back. `num_logits_to_keep` may be left out (all positions) or be 1 (the last alone); that it is both an
initializer and an input, of which ONNX Runtime warns at load, is meant.
"""
STATIC = """\
With ONNX Runtime alone: feed a prompt, padded on the right, to the prefill graph, and its `present.*` with
one token after another to the decode graph. `attention_mask` is 1 up to and including the newest token.
"""
PLAIN = """\
With ONNX Runtime alone, in any of its languages: feed `input_ids` (int64), take `logits`.
"""
BY_LAYOUT = {"dynamic": DYNAMIC, "static": STATIC, "plain": PLAIN}
"""What ONNX Runtime is told of each layout."""

GENAI = """\
With onnxruntime-genai, in Python, C#, Java, C++, Swift or Kotlin, from this folder:

    import onnxruntime_genai as og
    model = og.Model(".")
    params = og.GeneratorParams(model)
    params.set_search_options(do_sample=False, max_length=64)
    generator = og.Generator(model, params)
    generator.append_tokens({genai_prompt})
    while not generator.is_done():
        generator.generate_next_token()
    print({genai_answer})
"""
GENAI_TEXT = {
    "genai_prompt": 'og.Tokenizer(model).encode("Once upon a time")',
    "genai_answer": "og.Tokenizer(model).decode(generator.get_sequence(0))",
}
GENAI_IDS = {"genai_prompt": "[1, 2, 3]", "genai_answer": "generator.get_sequence(0)"}

TRANSFORMERS_JS = """\
With transformers.js (give no `dtype`: `config.json` says which file to take):

    import { pipeline } from "@huggingface/transformers";
    const write = await pipeline("text-generation", "path/of/this/folder");
    console.log(await write("Once upon a time", { max_new_tokens: 64, do_sample: false }));

`gpt-onnx web . -o site` makes a page that runs this bundle in a browser with onnxruntime-web.
"""
OPENVINO = """\
With OpenVINO: `openvino.Core().read_model("{graph}")`, with the inputs and outputs that ONNX Runtime sees.
"""
OPTIMUM = """\
With optimum: `ORTModelForCausalLM.from_pretrained(".")`, then transformers' `generate`.
"""
REFERENCE = """\
With the onnx package alone: `onnx.reference.ReferenceEvaluator("{graph}")`, slowly, to look into it.
"""
