"""Models at a plain https address."""

from urllib.parse import unquote, urlsplit

from localllm import names
from localllm.entries import Entry
from localllm.errors import BadRequest
from localllm.sources.plan import Plan
from localllm.sources.transfer import Remote
from localllm.sources.web import host_of


def plan(where: str, entry: Entry) -> Plan:
    """`where` is an http or https address; size and sha256 are those of the entry, if any.

    Raises BadRequest.
    """
    parts = urlsplit(where)
    last = unquote(parts.path.rpartition("/")[2])
    file = entry.file or last
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadRequest(f"{where!r} is not the address of a file.")
    if not names.is_file_name(file) or not file.endswith(".gguf"):
        file = "model.gguf"
    remote = Remote(where, entry.size, entry.sha256)
    return Plan(
        name=entry.name,
        source=f"url:{parts._replace(netloc=host_of(where)).geturl()}",
        files=(file,),
        sha256=(entry.sha256,),
        size=entry.size,
        disk=entry.size,
        why=f"the file at {host_of(where)}",
        fetch=lambda folder, progress: remote.fetch(folder / file, progress),
    )
