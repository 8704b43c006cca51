"""Brings a model onto this machine: one pull at a time, resumed, checked, there all at once."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from localllm import paths, store
from localllm.entries import Entry
from localllm.errors import BadFile, LocalLLMError, NotFound, TooLarge, Unavailable
from localllm.gguf import GGUF
from localllm.lock import held
from localllm.sources.plan import Plan, plan
from localllm.store import Installed, Progress

SPARE = 64 << 20  # bytes of the disk that stay free
PLAN = "plan.json"


def pull(
    entry: Entry, *, progress: Progress, sources: Sequence[str] = (), force: bool = False
) -> Installed:
    """The model of `entry`, fetched from the first of its sources (or `sources`) that has it.

    A pull of the same model by another process is waited for. Raises NotFound, Unavailable,
    TooLarge (disk) or BadFile; what was fetched until then is gone on with the next time.
    """
    name = entry.name

    def waiting() -> None:
        progress(store.size_of(store.partial(name)), entry.size)

    with held(store.lock_file(name), waiting=waiting):
        there = store.find(name)
        if there is not None and not force:
            return there
        return _fetch(plan_for(entry, sources), entry, progress)


def plan_for(entry: Entry, sources: Sequence[str] = ()) -> Plan:
    """What the first source that has the model would fetch.

    Raises what the sources raise, all reasons together where there are several.
    """
    reasons: list[LocalLLMError] = []
    for source in sources or entry.sources:
        try:
            return plan(source, entry)
        except (NotFound, Unavailable, BadFile) as error:
            reasons.append(error)
    if not reasons:
        raise NotFound(f"{entry.name} has no source to fetch it from.")
    worst = next((each for each in reasons if isinstance(each, Unavailable)), reasons[0])
    message = " ".join(dict.fromkeys(each.message for each in reasons))
    raise type(worst)(f"Cannot get {entry.name}: {message}", worst.hint)


def _fetch(plan: Plan, entry: Entry, progress: Progress) -> Installed:
    folder = _workplace(plan)
    _check_disk(plan, folder)
    plan.fetch(folder, progress)
    files = [folder / file for file in plan.files]
    try:
        hashes = _check(files, plan, entry)
    except LocalLLMError:
        shutil.rmtree(folder)
        raise
    for extra in folder.iterdir():
        if extra not in files:
            extra.unlink()
    size = sum(file.stat().st_size for file in files)
    model = Installed(
        entry.name, tuple(files), size, hashes, plan.source, store.now(), in_place=False
    )
    store.write_note(folder, model)
    return store.settle(entry.name, folder)


def _workplace(plan: Plan) -> Path:
    """The folder for the half-done model; emptied when it was begun from something else."""
    folder = store.partial(plan.name)
    identity = json.dumps([plan.source, plan.files, plan.sha256, plan.size])
    note = folder / PLAN
    try:
        same = note.read_text(encoding="utf-8") == identity
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        note.write_text(identity, encoding="utf-8")
    return folder


def _check_disk(plan: Plan, folder: Path) -> None:
    """Refuse before the first byte what the disk cannot hold."""
    needed = plan.disk - store.size_of(folder)
    free = shutil.disk_usage(folder).free
    if needed + SPARE > free:
        raise TooLarge(
            f"{plan.name} needs {needed / 1e9:.1f} GB more on the disk, and {free / 1e9:.1f} GB "
            f"are free at {paths.models()}.",
            "Make room with `localllm rm` and `localllm prune`, or set LOCALLLM_HOME elsewhere.",
        )


def _check(files: list[Path], plan: Plan, entry: Entry) -> tuple[str, ...]:
    """The sha256 of each file, after they proved to be a readable model, the one promised."""
    size = sum(file.stat().st_size for file in files)
    if entry.size and size != entry.size:
        raise BadFile(f"{plan.source} brought {size} bytes; {entry.name} has {entry.size}.")
    hashes = tuple(store.sha256_of(file) for file in files)
    for file, found, promised in zip(files, hashes, plan.sha256, strict=True):
        if promised and found != promised:
            raise BadFile(
                f"{file.name} from {plan.source} is not what was promised: its sha256 is {found}, "
                f"not {promised}.",
                "Try again; if it stays so, do not use it.",
            )
    with GGUF.open(files[0]):
        return hashes
