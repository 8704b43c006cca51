"""Where models, caches and settings live: platformdirs' folders, or below LOCALLLM_HOME."""

import os
from pathlib import Path

import platformdirs


def data() -> Path:
    """Models and what the user wrote; made by whoever first writes there."""
    return _home("data") or platformdirs.user_data_path("localllm", appauthor=False)


def cache() -> Path:
    """What can be made again: compiled kernels and the like."""
    return _home("cache") or platformdirs.user_cache_path("localllm", appauthor=False)


def models() -> Path:
    """A folder for each installed model."""
    return data() / "models"


def user_catalog() -> Path:
    """The user's own entries, presets and aliases, of the same form as models.yaml."""
    return data() / "models.yaml"


def offline() -> bool:
    """Did the user forbid the network (LOCALLLM_OFFLINE, HF_HUB_OFFLINE)?"""
    return any(_yes(os.environ.get(name, "")) for name in ("LOCALLLM_OFFLINE", "HF_HUB_OFFLINE"))


def _home(part: str) -> Path | None:
    home = os.environ.get("LOCALLLM_HOME")
    return Path(home).expanduser().absolute() / part if home else None


def _yes(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")
