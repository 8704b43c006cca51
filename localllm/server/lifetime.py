"""A server's life: binds the address, leaves the note, runs uvicorn, drains, lets models go."""

import asyncio
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import uvicorn

from localllm.errors import Unavailable
from localllm.server import note as notes
from localllm.server.application import application
from localllm.server.gate import Gate
from localllm.server.note import Note
from localllm.server.pool import Library, Pool
from localllm.server.settings import Settings
from localllm.server.site import Site

BACKLOG = 1024
SWEEP = 5.0  # seconds between looks for idle models


def run(
    settings: Settings,
    library: Library,
    named: Sequence[str],
    ready: Callable[[str], None] = lambda url: None,
    started: Callable[[Site], None] = lambda site: None,
) -> None:
    """Serve until asked to stop; then running requests may end.

    named: loaded at the start and kept. ready: called with the URL once requests are taken.
    started: handed the Site, from the server's thread.
    """
    with _listen(settings) as sock:
        host, port = sock.getsockname()[:2]
        reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        note = Note(reached, port, os.getpid(), secrets.token_bytes(32))
        with notes.leave(note):
            asyncio.run(_main(settings, library, named, note, sock, ready, started))


async def _main(
    settings: Settings, library: Library, named: Sequence[str], note: Note, sock: socket.socket,
    ready: Callable[[str], None], started: Callable[[Site], None],
) -> None:  # fmt: skip
    pool = Pool(library, settings.keep_alive, settings.memory)
    pool.pinned = tuple(named)
    site = Site(settings, pool, Gate(settings.running, settings.waiting), note)
    server = _Server(site)
    site.stop = server.ask_to_stop
    with _signals(server.ask_to_stop):
        chores = [asyncio.ensure_future(_models(pool)), asyncio.ensure_future(server.hang_up())]
        started(site)
        ready(note.url)
        await server.serve(sockets=[sock])
        for chore in chores:
            chore.cancel()
        await asyncio.gather(*chores, return_exceptions=True)
        await pool.close()


async def _models(pool: Pool) -> None:
    """Load what was named, then let go of what is idle, for ever."""
    for name in pool.pinned:
        task = pool.want(name).task
        assert task is not None
        await asyncio.wait([task])
    while True:
        await asyncio.sleep(max(0.25, min(SWEEP, pool.keep_alive)))
        await pool.sweep()


class _Server(uvicorn.Server):
    """uvicorn, but it leaves signals to us and closes the gate before it drains."""

    def __init__(self, site: Site):
        self.site = site
        super().__init__(
            uvicorn.Config(
                application(site),
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(site.settings.grace_seconds)),
                h11_max_incomplete_event_size=65536,
            )
        )

    def ask_to_stop(self, *_: object) -> None:
        """The first time: drain. The second: now."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def hang_up(self) -> None:
        """For ever: close connections on which no request arrives (slow headers, or none)."""
        silent: dict[Any, int] = {}
        while True:
            await asyncio.sleep(self.site.settings.header_seconds / 2)
            waiting = [c for c in self.server_state.connections if _unasked(c)]
            silent = {one: silent.get(one, 0) + 1 for one in waiting}
            for one in (one for one, looks in silent.items() if looks > 2):
                one.transport.close()  # type: ignore[union-attr]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.site.gate.close()
        await super().shutdown(sockets)


def _unasked(connection: Any) -> bool:
    """Has uvicorn's connection not had a whole request yet?"""
    return getattr(connection, "cycle", None) is None and connection.transport is not None


@contextmanager
def _signals(stop: Callable[..., None]) -> Iterator[None]:
    """SIGTERM and Ctrl-C ask to stop, for as long as the block lasts."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    kinds = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(kind, stop) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    if os.name != "nt":  # where it would let two servers share a port
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((settings.host.strip("[]"), settings.port))
        sock.listen(BACKLOG)  # whoever comes before uvicorn runs waits
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        raise Unavailable(
            f"{settings.host}:{settings.port} cannot be used: {reason}.",
            "Another server may run there: see `localllm ps`, or take another --port.",
        ) from None
    return sock
