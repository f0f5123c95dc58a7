"""Addresses that models answer at, and their keys: what is accepted, and what of a server's words is shown.

Invariant: no error repeats a key, nor an address that may have a password in it.
"""

from __future__ import annotations

import json
import os
import re
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from scotfree.rag.trouble import RagError

# Letters of what a server says that are shown.
_SAID_MAX: Final = 200


def checked(url: str, whose: str, key_name: str, advice: str) -> SplitResult:
    """The address, if it is one of http or https with a host, a port and a path, and nothing else."""
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:
        split = SplitResult("", "", "", "", "")
    if "@" in split.netloc:
        # It is not repeated: it has a password.
        raise RagError(f"read the address of {whose}: it has a name or a password", f"put a key into {key_name}")
    is_plain = re.fullmatch(r"[\x21-\x7e]*", url)
    is_bare = not (split.query or split.fragment)
    if split.scheme not in ("http", "https") or not split.hostname or not is_bare or not is_plain:
        raise RagError(f"read the address of {whose}, {url.partition('?')[0]}: it is none", advice)
    return split


def is_here(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def key_of(name: str) -> str:
    """The key in an environment variable; empty, if there is none."""
    return checked_key(os.environ.get(name, ""), name)


def checked_key(key: str, name: str) -> str:
    """The key, if it can be one: what else is there would be sent as something else."""
    if not re.fullmatch(r"[\x21-\x7e]*", key):
        raise RagError(f"read the key in {name}: it has letters that no key has", "set it anew")
    return key


def said(error: Any) -> str:
    """What an error of a server says: a text, or one with details."""
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or ""
    return error if isinstance(error, str) else json.dumps(error)


def shown(text: str, key: str) -> str:
    """Something that a server said, on one line, without the key."""
    text = text.replace(key, "(the key)") if key else text
    return " ".join(text.split())[:_SAID_MAX]
