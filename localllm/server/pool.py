"""The models in memory: loaded when asked for, kept while wanted, the least used out first."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from localllm.errors import (
    BadRequest,
    Busy,
    Cancelled,
    LocalLLMError,
    NotFound,
    TooLarge,
    Unavailable,
)

LOG = logging.getLogger("localllm.server")


@dataclass(frozen=True)
class Known:
    """A model that a request may name: bytes on disk, and when it came there (Unix time)."""

    name: str
    size: int
    created: int


class Library(Protocol):
    """Where models come from. Its methods are called from threads."""

    def names(self) -> Mapping[str, Known]: ...

    def find(self, name: str) -> Known | None:
        """The model that a request means by a name, which may be an alias."""
        ...

    def open(self, name: str, progress: Callable[[str, int, int], None]) -> Any:
        """An LLM. Raises TooLarge where memory is short."""
        ...

    def bytes(self, name: str) -> int:
        """Memory that the model takes: weights, pages and scratch."""
        ...


@dataclass(eq=False)
class Entry:
    """One model in the pool; `users` counts the requests that hold it or wait for it."""

    name: str
    state: str = "loading"  # then "ready"
    pinned: bool = False  # named on the command line: goes only to make room
    users: int = 0
    used: float = field(default_factory=time.monotonic)
    bytes: int = 0
    llm: Any = None
    progress: tuple[str, int, int] = ("queued", 0, 0)
    task: "asyncio.Task[None] | None" = None


class Pool:
    """Lives on one event loop, so its own state needs no lock; loading happens in one thread."""

    def __init__(self, library: Library, keep_alive: float, memory: int | None):
        self.library, self.keep_alive, self.memory = library, keep_alive, memory
        self.entries: dict[str, Entry] = {}
        self.failed: dict[str, str] = {}  # name -> what to tell a client
        self.pinned: tuple[str, ...] = ()
        self._closing = False
        self._one = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="localllm-load")

    async def known(self) -> Mapping[str, Known]:
        return await asyncio.to_thread(self.library.names)

    async def resolve(self, name: str | None) -> str:
        """The model that a request means. Raises NotFound, or BadRequest where none is named."""
        if not name:
            name = self._default()
        return name if name in self.entries else (await self.find(name)).name

    async def find(self, name: str) -> Known:
        """What is known of a model. Raises NotFound."""
        found = await asyncio.to_thread(self.library.find, name)
        if found is None:
            shown = name if len(name) <= 100 else name[:100] + "..."
            raise NotFound(f"The model '{shown}' is not here.", "GET /v1/models lists what is.")
        return found

    @asynccontextmanager
    async def use(self, name: str | None) -> AsyncIterator[Any]:
        """The LLM of that name, loaded if need be, and kept for as long as the block lasts."""
        entry = self.want(await self.resolve(name))
        entry.users += 1
        try:
            assert entry.task is not None
            await asyncio.shield(entry.task)
            yield entry.llm
        finally:
            entry.users -= 1
            entry.used = time.monotonic()

    def want(self, name: str) -> Entry:
        """The entry of a model, with its loading under way or done."""
        if name not in self.entries:
            entry = self.entries[name] = Entry(name, pinned=name in self.pinned)
            self.failed.pop(name, None)
            entry.task = asyncio.get_running_loop().create_task(self._load(entry))
            entry.task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self.entries[name]

    async def sweep(self) -> None:
        """Let go of what nobody has used for `keep_alive` seconds."""
        now = time.monotonic()
        for entry in self._idle():
            kept = entry.pinned or entry.users or now - entry.used < self.keep_alive
            if not kept and entry.name in self.entries:
                await self._unload(entry)

    async def close(self) -> None:
        """Let everything go; a model that is being loaded is given up at its next step."""
        self._closing = True
        for entry in list(self.entries.values()):
            if entry.task and not entry.task.done():
                await asyncio.wait([entry.task])
        for entry in list(self.entries.values()):
            await self._unload(entry)
        self._thread.shutdown()

    def _default(self) -> str:
        recent = max(self.entries.values(), key=lambda entry: entry.used, default=None)
        if self.pinned:
            return self.pinned[0]
        if recent is None:
            raise BadRequest(
                "No 'model' is named, and none is loaded.", "GET /v1/models lists them."
            )
        return recent.name

    async def _load(self, entry: Entry) -> None:
        try:
            async with self._one:
                await self._make_room(entry)
                entry.llm = await self._open(entry)
        except LocalLLMError as error:
            raise self._drop(entry, error, error.message) from None
        except Exception as error:
            raise self._drop(entry, error, "an error inside the server") from None
        entry.state, entry.used = "ready", time.monotonic()
        LOG.info('{"loaded": "%s", "bytes": %d}', entry.name, entry.bytes)

    def _drop(self, entry: Entry, error: Exception, detail: str) -> Exception:
        """Forget an entry whose loading failed. The detail may hold a path: it is for the log."""
        del self.entries[entry.name]
        LOG.error("Loading %s failed: %s", entry.name, detail, exc_info=error)
        if isinstance(error, Busy | TooLarge):
            self.failed[entry.name] = "not enough memory"
            if isinstance(error, TooLarge):
                return Unavailable(f"The model '{entry.name}' does not fit into memory now.")
            return error
        self.failed[entry.name] = "could not be loaded"
        return Unavailable(f"The model '{entry.name}' could not be loaded; the log says why.")

    async def _make_room(self, entry: Entry) -> None:
        """Under a memory budget, let idle models go until the new one fits. Raises Busy."""
        if self.memory is None:
            return
        entry.bytes = await self._run(self.library.bytes, entry.name)
        if entry.bytes > self.memory:
            raise TooLarge(f"{entry.name} needs {entry.bytes} bytes, {self.memory} are allowed.")
        while sum(other.bytes for other in self.entries.values()) > self.memory:
            if not await self._evict():
                raise Busy("All the memory for models is in use.", "Try again later.")

    async def _open(self, entry: Entry) -> Any:
        """Load; where the machine is short of memory, let idle models go and try again."""

        def progress(stage: str, done: int, total: int) -> None:
            entry.progress = (stage, done, total)
            if self._closing:
                raise Cancelled("The server is shutting down.")

        while True:
            try:
                return await self._run(self.library.open, entry.name, progress)
            except TooLarge:
                if not await self._evict():
                    raise

    async def _evict(self) -> bool:
        idle = self._idle()
        if idle:
            await self._unload(min(idle, key=lambda entry: (entry.pinned, entry.used)))
        return bool(idle)

    def _idle(self) -> list[Entry]:
        return [e for e in self.entries.values() if e.state == "ready" and not e.users]

    async def _unload(self, entry: Entry) -> None:
        """Out of the table first: whoever asks now gets a fresh entry, loaded after this one."""
        del self.entries[entry.name]
        LOG.info('{"unloaded": "%s"}', entry.name)
        if entry.llm is not None:
            await self._run(entry.llm.close)

    async def _run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)
