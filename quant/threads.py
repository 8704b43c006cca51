"""What kernels on several threads share: names for `quant.llvm.threads`."""

from typing import Any

from quant.later import Later


def __getattr__(name: str) -> Any:
    return Later("quant.llvm.threads", name)
