declare module "*/tokenizers.min.mjs";
declare module "*/ort-wasm-simd-threaded.mjs";
