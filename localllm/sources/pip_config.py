"""Where pip is told to look for packages, read from its files and variables; pip need not exist.

Order and names as in https://pip.pypa.io/en/stable/topics/configuration/: variables win over files;
of the files, those of the environment over the user's over the machine's; in a file, the section of
the command over [global].
"""

import configparser
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from localllm.errors import BadFile
from localllm.sources.web import Web

PYPI = "https://pypi.org/simple"
_KEYS = ("index-url", "extra-index-url", "find-links", "no-index", "cert", "proxy", "trusted-host")


@dataclass(frozen=True)
class PipConfig:
    """What of pip's settings decides where a wheel is found and how its host is reached."""

    index_url: str = PYPI
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    web: Web = field(default_factory=Web)
    trusted: frozenset[str] = frozenset()

    @property
    def indexes(self) -> tuple[str, ...]:
        """Every simple index to ask, none where pip may not ask any."""
        return () if self.no_index else (self.index_url, *self.extra_index_urls)


def read(environ: Mapping[str, str] | None = None, files: list[Path] | None = None) -> PipConfig:
    """pip's settings as `pip install` would see them. Raises BadFile for a file that is no INI."""
    environ = os.environ if environ is None else environ
    values = _from_files(config_files(environ) if files is None else files)
    for key in _KEYS:
        value = environ.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            values[key] = value
    trusted = frozenset(host.partition(":")[0] for host in values.get("trusted-host", "").split())
    web = Web(values.get("cert") or None, _proxy(values.get("proxy", "")), trusted)
    return PipConfig(
        index_url=values.get("index-url") or PYPI,
        extra_index_urls=tuple(values.get("extra-index-url", "").split()),
        find_links=tuple(values.get("find-links", "").split()),
        no_index=values.get("no-index", "").strip().lower() in ("1", "true", "yes", "on", "y", "t"),
        web=web,
        trusted=trusted,
    )


def config_files(environ: Mapping[str, str]) -> list[Path]:
    """pip's configuration files, those that win last; PIP_CONFIG_FILE comes at the very end."""
    chosen = environ.get("PIP_CONFIG_FILE", "")
    if chosen == os.devnull:
        return []
    name = "pip.ini" if sys.platform == "win32" else "pip.conf"
    legacy = Path.home() / ("pip" if sys.platform == "win32" else ".pip") / name
    user = platformdirs.user_config_path("pip", appauthor=False, roaming=True) / name
    if sys.platform == "darwin" and not user.parent.is_dir():
        user = Path.home() / ".config" / "pip" / name
    site = Path(sys.prefix) / name
    return [*_machine(name, environ), legacy, user, site, *([Path(chosen)] if chosen else [])]


def _machine(name: str, environ: Mapping[str, str]) -> list[Path]:
    if sys.platform == "win32":
        return [Path(environ.get("PROGRAMDATA", r"C:\ProgramData")) / "pip" / name]
    if sys.platform == "darwin":
        return [Path("/Library/Application Support/pip") / name]
    folders = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    return [*(Path(folder) / "pip" / name for folder in folders if folder), Path("/etc") / name]


def _from_files(files: list[Path]) -> dict[str, str]:
    common: dict[str, str] = {}
    command: dict[str, str] = {}
    for file in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(file, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise BadFile(f"pip's settings in {file} cannot be read: {reason}.") from None
        for section, values in (("global", common), ("install", command)):
            if parser.has_section(section):
                values.update(
                    (key.lower().replace("_", "-"), value) for key, value in parser.items(section)
                )
    return {key: value for key, value in {**common, **command}.items() if key in _KEYS}


def _proxy(value: str) -> str | None:
    if not value:
        return None
    return value if "://" in value else f"http://{value}"
