"""One process at a time: locks that the system gives back when a process dies."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from localllm.errors import Busy, Unavailable

POLL = 0.25  # seconds between two tries


@contextmanager
def held(
    path: Path, *, wait: float | None = None, waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock of the file `path`; wait at most `wait` seconds for it, None: for ever.

    `waiting` is called between tries and may raise. Raises Busy when the time is up.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(path)
        _acquire(lock, wait, waiting)
    except OSError as error:
        raise Unavailable(f"Cannot write {path}: {error}.", "Check the folder's rights.") from error
    try:
        yield
    finally:
        lock.release()


def _acquire(
    lock: filelock.BaseFileLock, wait: float | None, waiting: Callable[[], None] | None
) -> None:
    waited = 0.0
    while True:
        try:
            lock.acquire(timeout=0, poll_interval=POLL)
            return
        except filelock.Timeout:
            if wait is not None and waited >= wait:
                name = Path(lock.lock_file).stem
                raise Busy(f"Another localllm is busy with {name}.", "Try again later.") from None
        if waiting is not None:
            waiting()
        try:
            lock.acquire(timeout=POLL, poll_interval=POLL / 5)
            return
        except filelock.Timeout:
            waited += POLL
