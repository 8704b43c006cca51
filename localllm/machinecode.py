"""Where compiled kernels are kept between runs."""

from pathlib import Path

from localllm import kernels, paths
from localllm.backends import cpu
from quant.jit import cache_in


def keep() -> Path:
    """Have every kernel from now on cached in the user's cache folder; that folder."""
    sources = [Path(package.__file__ or "").parent for package in (kernels, cpu)]
    return cache_in(paths.cache() / "kernels", sources)
