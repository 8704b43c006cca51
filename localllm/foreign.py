"""Models that other programs brought: Ollama's blobs, LM Studio's folder, the Hugging Face cache.

They are used where they are and never written to; adopting one only notes its path.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localllm import entries, names, store
from localllm.errors import BadFile, LocalLLMError, NotFound
from localllm.gguf import GGUF, shards
from localllm.lock import held
from localllm.sources.choose import choose, quant

MAX_JSON = 1 << 20
MAX_FOUND = 10_000
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_MODEL_LAYER = "application/vnd.ollama.image.model"


@dataclass(frozen=True)
class Found:
    """A model of another program: the name it would get, its file, and whose it is."""

    name: str
    path: Path
    origin: str


def found(folder: Path | None = None) -> list[Found]:
    """What is in the places where Ollama, LM Studio and Hugging Face keep models, or in `folder`.

    `folder` may be one of theirs, or any folder with GGUF files. Raises NotFound.
    """
    if folder is not None:
        folder = folder.expanduser().absolute()
        if not folder.is_dir():
            raise NotFound(f"There is no folder {folder}.")
        return _distinct(_in(folder))
    places = [(_ollama, each) for each in _ollama_places()]
    places += [(_lm_studio, each) for each in _lm_studio_places()] + [(_hub, hub_cache())]
    return _distinct(model for look, place in places if place.is_dir() for model in look(place))


def adopt(model: Found) -> store.Installed:
    """Note a found model under its name, so that it counts as installed. Raises BadFile, Busy."""
    files = shards(model.path)
    with GGUF.open(model.path) as gguf:
        size = gguf.size
    with held(store.lock_file(model.name), wait=0):
        there = store.find(model.name)
        if there is not None:
            if there.path == files[0]:
                return there
            raise BadFile(
                f"{model.name} is installed already.", "Remove it or choose another name."
            )
        folder = store.partial(model.name)
        folder.mkdir(parents=True, exist_ok=True)
        hashes = (_blob_digest(files[0]),) + ("",) * (len(files) - 1)
        note = store.Installed(
            model.name, tuple(files), size, hashes, f"{model.origin}:{files[0]}", store.now(), True
        )
        store.write_note(folder, note)
        return store.settle(model.name, folder)


def hub_cache() -> Path:
    """Where Hugging Face's libraries keep what they downloaded."""
    if os.environ.get("HF_HUB_CACHE"):
        return Path(os.environ["HF_HUB_CACHE"]).expanduser()
    home = os.environ.get("HF_HOME")
    base = Path(home).expanduser() if home else Path.home() / ".cache" / "huggingface"
    return base / "hub"


def in_hub_cache(repo: str, wanted: str) -> Path | None:
    """The file of "user/repo" that `wanted` means, where the Hugging Face cache has it."""
    base = hub_cache() / ("models--" + repo.replace("/", "--"))
    revision = _text(base / "refs" / "main")
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        return None
    snapshot = base / "snapshots" / revision
    files = [file.relative_to(snapshot).as_posix() for file in snapshot.rglob("*.gguf")]
    try:
        path = snapshot / choose(files, wanted).files[0]
    except LocalLLMError:
        return None
    return path if path.is_file() else None


def _in(folder: Path) -> Iterator[Found]:
    if (folder / "manifests").is_dir() and (folder / "blobs").is_dir():
        yield from _ollama(folder)
    elif any(folder.glob("models--*")):
        yield from _hub(folder)
    else:
        yield from _plain(folder)


def _plain(folder: Path) -> Iterator[Found]:
    for path in _firsts(folder):
        yield Found(_stem(path), path, "folder")


def _ollama_places() -> list[Path]:
    chosen = os.environ.get("OLLAMA_MODELS")
    if chosen:
        return [Path(chosen).expanduser()]
    return [Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")]


def _ollama(place: Path) -> Iterator[Found]:
    """manifests/<registry>/<namespace>/<model>/<tag> names a blob by its digest."""
    for manifest in sorted((place / "manifests").glob("*/*/*/*")):
        _, space, model, tag = manifest.relative_to(place / "manifests").parts
        blob = _blob(place, _json(manifest))
        if blob is not None:
            name = model if space == "library" else f"{space}/{model}"
            yield Found(name if tag == "latest" else f"{name}:{tag}", blob, "ollama")


def _blob(place: Path, manifest: Any) -> Path | None:
    layers = manifest.get("layers") if isinstance(manifest, dict) else None
    for layer in layers if isinstance(layers, list) else []:
        if isinstance(layer, dict) and layer.get("mediaType") == _MODEL_LAYER:
            match = _DIGEST.fullmatch(str(layer.get("digest")))
            path = place / "blobs" / f"sha256-{match[1]}" if match else None
            return path if path is not None and path.is_file() else None
    return None


def _blob_digest(path: Path) -> str:
    """Ollama names a blob by its sha256."""
    match = re.fullmatch(r"sha256-([0-9a-f]{64})", path.name)
    return match[1] if match else ""


def _lm_studio_places() -> list[Path]:
    home = Path.home()
    return [home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"]


def _lm_studio(place: Path) -> Iterator[Found]:
    """<publisher>/<repository>/<file>.gguf"""
    for path in _firsts(place):
        yield Found(_stem(path), path, "lm-studio")


def _hub(place: Path) -> Iterator[Found]:
    """models--<user>--<repo>/snapshots/<revision>/<file>; only what main points to."""
    for repo in sorted(place.glob("models--*--*")):
        revision = _text(repo / "refs" / "main")
        if re.fullmatch(r"[0-9a-f]{40}", revision):
            for path in _firsts(repo / "snapshots" / revision):
                user, name = repo.name.removeprefix("models--").split("--", 1)
                tag = quant(path.name).lower()
                yield Found(f"{user}/{name}" + (f":{tag}" if tag else ""), path, "hf")


def _firsts(folder: Path) -> Iterator[Path]:
    """The first file of every model below `folder`."""
    for path in sorted(folder.rglob("*.gguf")):
        try:
            if path.is_file() and shards(path)[0] == path and "mmproj" not in path.name.lower():
                yield path
        except BadFile:
            continue


def _stem(path: Path) -> str:
    """The file's name without its ending and shard number."""
    return re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)


def _distinct(models: Iterable[Found]) -> list[Found]:
    """Valid names, each once; one that is taken, or the catalogue's, gets its origin behind it."""
    taken: dict[str, Found] = {}
    known = entries.read()
    for model in models:
        name = re.sub(r"[^A-Za-z0-9._/:-]+", "-", model.name).strip("-._/:")
        if name in taken or name in known:
            name = f"{name}-{model.origin}"
        if name in taken or not names.is_name(name) or len(taken) >= MAX_FOUND:
            continue
        taken[name] = Found(name, model.path, model.origin)
    return list(taken.values())


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError):
        return None


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_JSON).decode("utf-8", "replace").strip()
    except OSError:
        return ""
