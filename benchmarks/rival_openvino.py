"""OpenVINO GenAI as `rivals.py` measures it: run with the Python that has openvino-genai.

    PYTHON rival_openvino.py MODEL THREADS FOLDER

Reads a request a line on stdin, writes an answer a line; `rivals.py` says what is in them. A GGUF
takes it minutes to read: what came of it is kept in FOLDER. Attention by pages of KV, and without.
"""

import os
import random
import sys
from pathlib import Path

import numpy as np
import openvino
import openvino_genai as genai
from rival_loop import answer

BACKENDS = {"PA": "pages", "SDPA": "no pages"}


class Setting:
    """One way to run the model."""

    def __init__(self, path: Path, threads: int, backend: str):
        self.name = BACKENDS[backend]
        options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
        self.pipeline = genai.LLMPipeline(path, "CPU", ATTENTION_BACKEND=backend, **options)
        self.random = random.Random(1)

    def run(self, kind: str, tokens: int) -> float:
        """Seconds to the first token behind so many, or from the first token to so many later.

        Every prompt is another one, for the pages of an old one are found again.
        """
        prompt, new = (tokens, 1) if kind == "pp" else (8, tokens + 1)
        ids = np.array([[self.random.randrange(1000) for _ in range(prompt)]], np.int64)
        inputs = genai.TokenizedInputs(openvino.Tensor(ids), openvino.Tensor(np.ones_like(ids)))
        config = genai.GenerationConfig(max_new_tokens=new, ignore_eos=True, do_sample=False)
        result = self.pipeline.generate(inputs, config)
        if len(result.tokens[0]) != new:
            sys.exit(f"OpenVINO gave {len(result.tokens[0])} tokens instead of {new}")
        metrics = result.perf_metrics
        if kind == "pp":
            return metrics.get_ttft().mean / 1000
        return (metrics.get_generate_duration().mean - metrics.get_ttft().mean) / 1000


def converted(path: Path, folder: Path) -> Path:
    """The folder with OpenVINO's form of a GGUF, which is made when it is not there."""
    place = folder.resolve() / path.stem
    if not (place / "openvino_model.xml").exists():
        place.mkdir(parents=True, exist_ok=True)
        link = place / path.name
        if not link.exists():
            os.symlink(path.resolve(), link)
        genai.LLMPipeline(link, "CPU", enable_save_ov_model=True)
    return place


def main(path: str, threads: str, folder: str) -> None:
    try:
        place = converted(Path(path), Path(folder))
    except RuntimeError as error:
        sys.exit(f"OpenVINO cannot load {path}: {str(error).strip().splitlines()[-1]}")
    settings = [Setting(place, int(threads), backend) for backend in BACKENDS]
    answer(f"openvino-genai {genai.__version__}", settings)


if __name__ == "__main__":
    main(*sys.argv[1:])
