"""What both rivals' programs do: time what `rivals.py` asks for, in environments of their own."""

import json
import sys
from collections.abc import Sequence
from typing import Protocol


class Setting(Protocol):
    """A rival as it is set up once: `run` gives the seconds of "pp" or "tg" of so many tokens."""

    name: str

    def run(self, kind: str, tokens: int) -> float: ...


def answer(about: str, settings: Sequence[Setting]) -> None:
    """Say what there is, then time what is asked, until there are no more lines."""
    print(json.dumps({"about": about, "settings": [s.name for s in settings]}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        seconds = settings[request["setting"]].run(request["kind"], request["tokens"])
        print(json.dumps({"seconds": seconds}), flush=True)
