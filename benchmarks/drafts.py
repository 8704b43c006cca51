"""Measures what guessing at next tokens gains, in turns with doing without, and prints a table.

    python benchmarks/drafts.py [MODEL ...] [--repeats N] [--tokens N]

Needs a machine that does nothing else meanwhile. Each task is asked greedily and with the settings
that the model recommends; the answers are compared, and must be the same.
"""

import argparse
import statistics

from localllm.llm import LLM

MODELS = ["smollm2", "qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"]

CODE = '''
def parse(line):
    """Split a line into key and value."""
    key, _, value = line.partition("=")
    key = key.strip()
    if not key:
        raise ValueError("no key")
    return key, value.strip()


def read(path):
    """Read all keys and values of a file."""
    result = {}
    with open(path) as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip()
            if not line or line.startswith("#"):
                continue
            try:
                key, value = parse(line)
            except ValueError as error:
                raise ValueError(f"{path}:{number}: {error}") from None
            result[key] = value
    return result
'''

NEWS = """
The town council met on Tuesday to discuss the new bridge. It would cost twelve million and be open
to traffic in two years. Two members said that it is not needed, for the old bridge still carries
all cars. The mayor answered that the old bridge is a hundred years old, and that its repair would
cost nearly as much. A vote on the bridge was put off until next month, when a second offer is in.
"""

TASKS = {
    "edit": f"Rename `parse` to `parse_line` in this code, and give all of it back:\n{CODE}",
    "correct": f"Repeat this text word for word, with Thursday in place of Tuesday:\n{NEWS}",
    "sum up": f"Sum this up in three sentences:\n{NEWS}",
    "write code": "Write a Python class for a bank account, with docstrings and tests.",
    "explain": "Why is the sky blue? Explain it to a child.",
}


class Bench:
    """One open model."""

    def __init__(self, llm: LLM, tokens: int):
        self.llm, self.tokens = llm, tokens

    def ask(self, task: str, guessing: bool, **knobs: float) -> tuple[str, float, dict]:
        """The answer, its tokens a second, and its timings."""
        assert self.llm.worker is not None
        self.llm.worker.call(lambda engine: setattr(engine, "drafts", guessing))
        messages = [{"role": "user", "content": TASKS[task]}]
        reply = self.llm.chat(messages, max_tokens=self.tokens, seed=1, **knobs)
        timings = reply.timings
        return reply.text, timings["predicted_per_second"], {**timings, **reply.usage}

    def row(self, task: str, repeats: int, **knobs: float) -> str:
        """A line of the table, but for the model."""
        ratios, rates, last = [], [], {}
        for _ in range(repeats):
            text, without, _ = self.ask(task, False, **knobs)
            same, rate, last = self.ask(task, True, **knobs)
            assert text == same, "a guess has changed the answer"
            ratios.append(rate / without)
            rates.append((rate, without))
        rate, without = map(statistics.median, zip(*rates, strict=True))
        guesses = f"{last['draft_n_accepted']} of {last['draft_n']}"
        cells = (task, "greedy" if knobs else "as recommended", f"{last['completion_tokens']}")
        cells += (guesses, f"{rate:.0f}", f"{without:.0f}", f"{statistics.median(ratios):.2f}")
        return " | ".join(cells)


def main() -> None:
    """Measure, and print a table as it grows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=256)
    asked = parser.parse_args()
    print("| model | task | sampling | tokens | guesses right | t/s | t/s without | ratio |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |", flush=True)
    for model in asked.models:
        with LLM.open(model, context=4096) as llm:
            bench = Bench(llm, asked.tokens)
            bench.ask("explain", True)  # every kernel has run once
            for task in TASKS:
                for knobs in ({"temperature": 0.0}, {}):
                    line = bench.row(task, asked.repeats, **knobs)
                    print(f"| {model} | {line} |", flush=True)


if __name__ == "__main__":
    main()
