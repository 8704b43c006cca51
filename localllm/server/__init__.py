"""The localhost HTTP API: OpenAI's routes and llama.cpp's native ones over a pool of models."""
