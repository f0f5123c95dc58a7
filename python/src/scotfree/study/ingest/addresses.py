"""Whom a client calls, by the address that its record names: what is left where nothing says the service."""

from __future__ import annotations

import ipaddress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from scotfree.study.schema import Kind

# A server's record has its own address there, or, by older versions of the conventions, its client's.
_CALLING: Final = pa.array([int(Kind.CLIENT), int(Kind.PRODUCER)], pa.int8())


def peers(rows: pa.Table) -> pa.Array:
    """The peer of each record: as it says it, else the host that a client calls."""
    named = rows["peer_service"].cast(pa.string()).combine_chunks()
    coded = rows["peer_address"].combine_chunks()
    hosts = pa.array([host(text) for text in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)
    calls = pc.is_in(rows["kind"].combine_chunks(), _CALLING)
    return pc.coalesce(named, pc.if_else(calls, hosts, pa.scalar(None, pa.string())))


def host(address: str) -> str | None:
    """A name or a number without port; none for the machine's own, which is another on each machine."""
    word = address.strip()
    if word.startswith("["):
        word = word[1:].partition("]")[0]
    elif word.count(":") == 1:
        name, _, port = word.partition(":")
        word = name if port.isdigit() else word
    return word if word and not _is_own(word) else None


def _is_own(word: str) -> bool:
    try:
        number = ipaddress.ip_address(word)
    except ValueError:
        return word.lower() == "localhost"
    return number.is_loopback or number.is_unspecified
