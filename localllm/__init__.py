"""localllm: run quantized language models on your own machine."""
