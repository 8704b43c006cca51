"""Models on a Hugging Face hub: huggingface_hub asks what there is; the bytes come resumable.

huggingface_hub 2 drops what a killed download had, so only the listing, the addresses and the token
are its part.
"""

import os
from functools import partial
from pathlib import Path
from urllib.parse import quote

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from localllm import names, paths
from localllm.entries import Entry
from localllm.errors import BadFile, BadRequest, NotFound, Unavailable
from localllm.sources.choose import choose
from localllm.sources.plan import Plan, Progress
from localllm.sources.transfer import Remote
from localllm.sources.web import CONNECT, HINT

HUB = "https://huggingface.co"


def plan(where: str, entry: Entry) -> Plan:
    """What the hub (HF_ENDPOINT) has of "user/repo[:quant]" or "user/repo/file.gguf".

    Raises NotFound, Unavailable or BadRequest; BadFile where it is not what the catalogue promises.
    """
    repo, wanted = names.hub(f"hf:{where}")
    info = _info(repo)
    listed = {each.rfilename: each for each in info.siblings or []}
    try:
        choice = choose(list(listed), wanted)
    except NotFound as error:
        raise NotFound(f"{repo}: {error.message}", error.hint) from None
    remotes = [_remote(repo, info.sha or "main", listed[file]) for file in choice.files]
    files = tuple(file.rpartition("/")[2] for file in choice.files)
    if not all(names.is_file_name(file) for file in files):
        raise BadFile(f"{repo} names its files in a way that no folder should hold.")
    hashes = tuple(remote.sha256 for remote in remotes)
    if entry.sha256 and hashes[0] and hashes != (entry.sha256,):
        raise BadFile(f"{repo} now has other weights than the catalogue knows.")
    size = sum(remote.size for remote in remotes)
    return Plan(
        name=entry.name,
        source=f"hf:{repo}/{choice.files[0]}",
        files=files,
        sha256=hashes,
        size=size if all(remote.size for remote in remotes) else 0,
        disk=size,
        why=choice.why,
        fetch=lambda folder, progress: _fetch(
            dict(zip(files, remotes, strict=True)), folder, progress
        ),
    )


def _info(repo: str) -> huggingface_hub.ModelInfo:
    if paths.offline():
        raise Unavailable(
            f"Not asking for {repo}: localllm is set to work offline.",
            "Unset LOCALLLM_OFFLINE and HF_HUB_OFFLINE to download.",
        )
    try:
        api = huggingface_hub.HfApi(endpoint=_endpoint())
        return api.model_info(repo, files_metadata=True, timeout=2 * CONNECT)
    except HFValidationError as error:
        raise BadRequest(f"{repo!r} cannot be a repository: {error}.") from None
    except HfHubHTTPError as error:
        raise _refused(repo, error) from None
    except Exception as error:  # of the HTTP library it uses, which changed twice in two years
        raise Unavailable(f"Cannot reach {_endpoint()}: {error}.", HINT) from error


def _refused(repo: str, error: HfHubHTTPError) -> NotFound | Unavailable:
    status = getattr(error.response, "status_code", 0)
    if status in (401, 403, 404):
        return NotFound(
            f"{_endpoint()} has no model {repo} for you.",
            "Check the name. Gated and private ones need `hf auth login` or HF_TOKEN.",
        )
    return Unavailable(f"{_endpoint()} answers {status} for {repo}.", HINT)


def _remote(repo: str, revision: str, file: object) -> Remote:
    name, size = getattr(file, "rfilename", ""), getattr(file, "size", 0) or 0
    lfs = getattr(file, "lfs", None)
    digest = getattr(lfs, "sha256", "") or ""
    url = f"{_endpoint()}/{repo}/resolve/{quote(revision, safe='')}/{quote(name)}"
    token = huggingface_hub.get_token()
    return Remote(url, size, digest, f"Bearer {token}" if token else "")


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or HUB).rstrip("/")


def _fetch(remotes: dict[str, Remote], folder: Path, progress: Progress) -> None:
    total, done = sum(remote.size for remote in remotes.values()), 0
    for name, remote in remotes.items():
        remote.fetch(folder / name, partial(_report, progress, done, total))
        done += (folder / name).stat().st_size


def _report(progress: Progress, start: int, total: int, here: int, _: int) -> None:
    progress(start + here, total)
