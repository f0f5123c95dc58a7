"""A process that embeds with OpenVINO, and ends at once if anything in it looks for the network.

`python rag_silent.py FOLDER`
"""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

TOLD = 3


def listen(event: str, arguments: tuple[Any, ...]) -> None:
    """Ends the process, its threads with it; a fork may tell where nobody listens."""
    if event in ("socket.getaddrinfo", "socket.connect", "socket.sendto", "os.fork", "subprocess.Popen"):
        print(event, arguments, file=sys.stderr, flush=True)
        os._exit(TOLD)


def main(folder: str) -> None:
    """Embeds one text."""
    assert importlib.util.find_spec("openvino_telemetry"), "without it there is nothing to keep silent"
    sys.addaudithook(listen)
    from scotfree.rag.embed import by_name  # noqa: PLC0415

    print(f"a vector of {by_name(f'openvino:{folder}').embed(['cats']).shape[1]}")


if __name__ == "__main__":
    main(sys.argv[1])
