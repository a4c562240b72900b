"""``python -m gpt_onnx`` is ``gpt-onnx``."""

from gpt_onnx.cli import main

if __name__ == "__main__":
    main()
