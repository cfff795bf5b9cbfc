"""A thinker on llama.cpp: small instruct models in a GGUF file, on the CPU."""
