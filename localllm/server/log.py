"""One JSON line a request, to standard error; what was said stays out unless asked for."""

import json
import logging
import time
from typing import Any

from localllm.server.record import Record

LOG = logging.getLogger("localllm.server")


def line(record: Record) -> str:
    """The request as one line of JSON, fields that do not apply left out."""
    now = time.monotonic()
    shown: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "id": record.id,
        "method": record.method,
        "path": record.path,
        "status": record.status,
        "client": record.client,
        "ms": _ms(now - record.began),
        "model": record.model,
        "stream": record.stream or None,
        "finish": record.finish,
    }
    if record.finish:
        shown |= {
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "completion_tokens": record.completion_tokens,
            "ttft_ms": _ms(record.ttft),
            "tokens_per_second": record.speed and round(record.speed, 2),
        }
    if record.answer is not None:
        shown |= {"prompt": record.prompt, "answer": "".join(record.answer), "miss": record.miss}
    return json.dumps({k: v for k, v in shown.items() if v is not None and v != ""})


def write(record: Record) -> None:
    LOG.info(line(record))


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
