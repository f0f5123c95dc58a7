"""Calls of one method as Zipkin has them."""

from __future__ import annotations

import json
from pathlib import Path


def write(path: Path, count: int = 120) -> Path:
    """A file with so many."""
    spans = [
        {
            "traceId": f"{call + 1:032x}",
            "id": f"{call + 1:016x}",
            "kind": "CLIENT",
            "name": "get",
            "timestamp": 1_700_000_000_000_000 + call * 10_000,
            "duration": 1_000 + call,
            "localEndpoint": {"serviceName": "Shop"},
            "remoteEndpoint": {"serviceName": "Cart"},
        }
        for call in range(count)
    ]
    path.write_text(json.dumps(spans))
    return path
