"""What a server may be told: address, keys, limits; and whether that combination is safe."""

import ipaddress
from dataclasses import dataclass

from localllm.errors import BadRequest

PORT = 11435


@dataclass(frozen=True, slots=True)
class Settings:
    """One server's settings. Sizes in bytes, times in seconds."""

    host: str = "127.0.0.1"
    port: int = PORT
    api_key: str | None = None
    insecure: bool = False  # another address than loopback without a key
    hosts: tuple[str, ...] = ()  # further names in a Host header
    origins: tuple[str, ...] = ()  # web pages of other origins that may call
    body_bytes: int = 16 * 2**20
    header_seconds: float = 20.0  # for the first request of a connection to arrive
    body_seconds: float = 30.0  # for the body to arrive
    running: int = 64  # requests in the engine at a time
    waiting: int = 512  # requests that may wait for their turn
    request_seconds: float = 3600.0
    grace_seconds: float = 10.0  # for running requests, once asked to stop
    ping_seconds: float = 15.0  # of silence on a stream before a comment line
    keep_alive: float = 300.0  # idle time after which a model loaded on request goes
    memory: int | None = None  # all loaded models together; None: what the machine has
    log_prompts: bool = False

    def __post_init__(self) -> None:
        if not loopback(self.host) and not self.api_key and not self.insecure:
            raise BadRequest(
                f"{self.host} can be reached from other machines, and no key is set.",
                "Give --api-key or --api-key-file, or say --insecure if anyone may use it.",
            )
        if self.api_key is not None and not sendable(self.api_key):
            raise BadRequest(
                "An API key is made of printable ASCII characters, and has no space at its ends.",
                "An HTTP header carries no other unchanged: nobody could use it.",
            )


def sendable(key: str) -> bool:
    """Does a header carry this unchanged, whoever sends it?"""
    return key.strip() == key != "" and key.isascii() and key.isprintable()


def loopback(host: str) -> bool:
    """Is this address only reachable from this machine? A name other than localhost is not."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def numeric(host: str) -> bool:
    """Is this an IP address rather than a name?"""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
