"""The note that a server leaves for `run`, `ps` and `stop`, and how each side proves itself.

The note (0600, in the data folder) holds address, process and a secret. A client sends a nonce; a
server that answers with the HMAC of nonce and address under the secret has read the note, so it is
the user's own. From then on the client shows a token made from the secret. The secret itself never
crosses the wire, and an answer passed on from another address proves nothing.
"""

import contextlib
import hashlib
import hmac
import http.client
import json
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localllm import errors, paths
from localllm.errors import LocalLLMError, PromptTooLong, Unavailable

TIMEOUT = 3.0  # seconds for a server to prove itself
LARGEST = 4096  # bytes of a note
KINDS: dict[int, type[LocalLLMError]] = {
    400: errors.BadRequest,
    404: errors.NotFound,
    429: errors.Busy,
    501: errors.Unsupported,
}


@dataclass(frozen=True)
class Note:
    """What one server wrote down about itself."""

    host: str
    port: int
    pid: int
    secret: bytes = field(repr=False)

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    def proof(self, nonce: str) -> str:
        """What only who knows the secret can answer to a nonce."""
        return self._sign(f"server {self.host} {self.port} {nonce}")

    def token(self) -> str:
        """What a client shows to a server that has proven itself."""
        return self._sign(f"client {self.host} {self.port}")

    def _sign(self, text: str) -> str:
        return hmac.new(self.secret, text.encode(), hashlib.sha256).hexdigest()


def folder() -> Path:
    return paths.data() / "servers"


@contextlib.contextmanager
def leave(note: Note) -> Iterator[Path]:
    """Write a note for as long as the block lasts. Only this user can read it."""
    folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder() / f"{note.port}.json"
    fresh = path.with_suffix(f".{secrets.token_hex(4)}")
    shown = {"host": note.host, "port": note.port, "pid": note.pid, "secret": note.secret.hex()}
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(shown, file)
    os.replace(fresh, path)
    try:
        yield path
    finally:
        if (left := read(path)) and left.secret == note.secret:
            path.unlink(missing_ok=True)


def read(path: Path) -> Note | None:
    """A note; None where it is no note, or somebody else could have written or read it."""
    try:
        if not _private(path.stat()):
            return None
        with path.open("rb") as file:
            found = json.loads(file.read(LARGEST))
        host, port, pid, secret = (found[key] for key in ("host", "port", "pid", "secret"))
        whole = isinstance(host, str) and isinstance(port, int) and isinstance(pid, int)
        return Note(host, port, pid, bytes.fromhex(secret)) if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _private(about: os.stat_result) -> bool:
    """Windows keeps the user's folders from others by itself."""
    if os.name == "nt":
        return True
    return about.st_uid == os.getuid() and not about.st_mode & (stat.S_IRWXG | stat.S_IRWXO)


def find_servers() -> list[Note]:
    """The user's servers that answer and have proven themselves, by port."""
    paths_ = sorted(folder().glob("*.json")) if folder().is_dir() else []
    return [note for path in paths_ if (note := read(path)) and proven(note)]


def find_server() -> Note | None:
    """The first of them, if there is one."""
    return next(iter(find_servers()), None)


def proven(note: Note) -> bool:
    """Ask whoever listens at the note's address for proof. Shows nothing but a nonce."""
    nonce = secrets.token_hex(32)
    try:
        answer = call(
            note, "POST", "/control/prove", {"nonce": nonce}, timeout=TIMEOUT, token=False
        )
    except LocalLLMError:
        return False
    proof = answer.get("proof") if isinstance(answer, dict) else None
    return isinstance(proof, str) and hmac.compare_digest(
        proof.encode("utf-8", "replace"), note.proof(nonce).encode()
    )


def stop(note: Note) -> None:
    """Ask a proven server to end. Raises Unavailable where it does not answer."""
    call(note, "POST", "/control/stop", {})


def status(note: Note) -> dict[str, Any]:
    """What a proven server is doing: {"pid", "uptime", "models": [...], "running", "waiting"}."""
    return call(note, "GET", "/control/status")


def call(
    note: Note, method: str, path: str, body: Any = None, *, timeout: float = 10.0,
    token: bool = True,
) -> Any:  # fmt: skip
    """One JSON answer from a server. Raises what the server says is wrong, or Unavailable."""
    connection = http.client.HTTPConnection(note.host, note.port, timeout=timeout)
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {note.token()}"
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, headers)
        response = connection.getresponse()
        raw = response.read(2**20)
        if response.status != 200:
            raise refusal(response.status, raw)
        return json.loads(raw)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Unavailable(f"No server answers at {note.url}.", str(error)) from None
    finally:
        connection.close()


def refusal(status: int, body: bytes) -> LocalLLMError:
    """The error that a server answered, as the one it was over there."""
    try:
        error = json.loads(body)["error"]
        message = str(error["message"])
        if "n_prompt_tokens" in error:
            return PromptTooLong(int(error["n_prompt_tokens"]), int(error["n_ctx"]))
    except (ValueError, KeyError, TypeError):
        message = f"The server answered {status}."
    return KINDS.get(status, Unavailable)(message)
