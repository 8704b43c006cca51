"""What to measure: lists and ranges from the command line become a grid of cases."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from localllm.errors import BadRequest

MOST = 1000  # numbers that one list may expand to
PASS, FEW = 512, 8  # tokens of a prompt's pass; of a generation that only warms up
RANGE = re.compile(r"(\d+)(?:-(\d+)(?:([+*])(\d+))?)?")


@dataclass(frozen=True)
class Case:
    """`tokens` of prompt or of generation for each of `batch` sequences, behind `depth` others."""

    kind: str  # "pp" or "tg"
    tokens: int
    depth: int = 0
    batch: int = 1

    @property
    def name(self) -> str:
        """As llama-bench names them: pp512, tg64, pp512@d4096, tg64x8."""
        batch = f"x{self.batch}" if self.batch > 1 else ""
        depth = f"@d{self.depth}" if self.depth else ""
        return f"{self.kind}{self.tokens}{batch}{depth}"

    @property
    def length(self) -> int:
        """Tokens that each sequence holds in the end."""
        return self.depth + self.tokens

    @property
    def total(self) -> int:
        """Tokens that count."""
        return self.tokens * self.batch

    @property
    def short(self) -> "Case":
        """Passes of the same shape, but few of them: enough to warm up."""
        if self.kind == "pp":
            return replace(self, tokens=min(self.tokens, PASS), batch=1)
        return replace(self, tokens=min(self.tokens, FEW))


def numbers(text: str) -> list[int]:
    """ "1,2,8", "1-4", "512-2048+512" and "1-16*2", in any mix. Raises BadRequest."""
    found: list[int] = []
    for part in text.split(","):
        match = RANGE.fullmatch(part.strip())
        if not match:
            raise BadRequest(f"{part!r} is no number or range.", "Write 8, 1,2,4, 1-4 or 1-16*2.")
        first, last, operation, step = match.groups()
        found.extend(_expand(int(first), int(last or first), operation or "+", int(step or 1)))
        if len(found) > MOST:
            raise BadRequest(f"{text!r} is more than {MOST} numbers.")
    return found


def _expand(first: int, last: int, operation: str, step: int) -> list[int]:
    stuck = step < 1 if operation == "+" else step < 2 or first < 1
    if stuck or last < first:
        raise BadRequest(f"The range {first}-{last}{operation}{step} has no end.")
    if operation == "+":
        return list(range(first, last + 1, step))[: MOST + 1]
    values = itertools.takewhile(lambda n: n <= last, (first * step**i for i in itertools.count()))
    return list(values)


def grid(
    prompts: Sequence[int],
    generations: Sequence[int],
    depths: Sequence[int],
    batches: Sequence[int],
) -> list[Case]:
    """Every combination, prompts first; 0 tokens are nothing to measure."""
    kinds = [("pp", tokens) for tokens in prompts] + [("tg", tokens) for tokens in generations]
    cases = [
        Case(kind, tokens, depth, batch)
        for depth, batch in itertools.product(depths, batches)
        for kind, tokens in kinds
        if tokens
    ]
    if not cases or any(case.batch < 1 for case in cases):
        raise BadRequest(
            "There is nothing to measure.", "Give -p or -n some tokens, -b at least 1."
        )
    return cases
