"""The models a server may load: installed ones, and those named when it started."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from localllm import catalog, opening, store
from localllm.engine.loop import Loop
from localllm.errors import BadRequest
from localllm.gguf import GGUF
from localllm.llm import LLM
from localllm.server.pool import Known


class Installed:
    """A request can only name what is here, while `models` may be all that LLM.open takes.

    options: for LLM.open. Raises what finding or pulling one of the models raises.
    """

    def __init__(self, models: Sequence[str], options: Mapping[str, Any]):
        self._given: dict[str, str] = {}  # name -> as it was given
        self._known: dict[str, Known] = {}
        for model in models:
            found = catalog.resolve(model, pull=True)
            if found.name in self._given:
                raise BadRequest(f"Two of the models go by the name {found.name}.")
            self._given[found.name] = model
            self._known[found.name] = Known(found.name, found.path.stat().st_size, int(time.time()))
        self._loop = Loop()  # all models take turns on it
        self._options = dict(options) | {"loop": self._loop}

    @property
    def named(self) -> tuple[str, ...]:
        """The names of the models given."""
        return tuple(self._given)

    def names(self) -> dict[str, Known]:
        there = (model for model in store.installed() if model.present)
        return {model.name: _known(model) for model in there} | self._known

    def find(self, name: str) -> Known | None:
        if name in self._known:
            return self._known[name]
        found = catalog.find(name)
        if found is None:
            return None
        installed = store.find(found.name)
        if installed is not None:
            return _known(installed)
        return Known(name, found.path.stat().st_size, int(found.path.stat().st_mtime))

    def open(self, name: str, progress: Callable[[str, int, int], None]) -> LLM:
        return LLM.open(self._given.get(name, name), progress=progress, **self._options)

    def close(self) -> None:
        """Once all models are closed."""
        self._loop.close()

    def bytes(self, name: str) -> int:
        path = catalog.resolve(self._given.get(name, name), pull=False).path
        context, kv_type = self._options.get("context"), self._options.get("kv_type") or "f16"
        with GGUF.open(path) as gguf:
            return opening.plan(gguf, context, kv_type).needs


def _known(model: store.Installed) -> Known:
    return Known(model.name, model.size, int(datetime.fromisoformat(model.added).timestamp()))
