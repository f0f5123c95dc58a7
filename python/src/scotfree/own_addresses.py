"""Addresses of this machine, as a browser can open them."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final

# Of Linux: the address of an interface (netdevice(7)), whose name has 16 bytes and whose address begins behind it.
_SIOCGIFADDR: Final = 0x8915
_REQUEST: Final = struct.Struct("16s24s")
_ADDRESS: Final = slice(20, 24)
# Of each interface's addresses one a line: 32 digits, and others' words.
_IPV6: Final = Path("/proc/net/if_inet6")
_GROUP: Final = 4


def is_any(host: str) -> bool:
    """Whether who listens there listens on all addresses: no browser can open that one."""
    try:
        return not host or ip_address(host).is_unspecified
    except ValueError:
        return False


def urls(host: str, port: int, others_max: int) -> tuple[str, list[str]]:
    """Where a browser of this machine finds what listens there, and where browsers of others may.

    Of these at most so many.
    """
    if not is_any(host):
        return url(host, port), []
    is_both = ":" in host
    others = [*_ipv4(), *(_ipv6() if is_both else ())]
    return url("::1" if is_both else "127.0.0.1", port), [url(each, port) for each in others[:others_max]]


def url(host: str, port: int) -> str:
    """As it is typed."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _ipv4() -> Iterator[str]:
    """One of each interface that has one, but for the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                said = fcntl.ioctl(asked, _SIOCGIFADDR, _REQUEST.pack(name.encode()[:15], b""))
                if not ip_address(found := socket.inet_ntoa(said[_ADDRESS])).is_loopback:
                    yield found


def _ipv6() -> Iterator[str]:
    """All but the loopback's and those that count on one link alone, which browsers do not open."""
    try:
        lines = _IPV6.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        digits = line.split()[0]
        found = ip_address(":".join(digits[at : at + _GROUP] for at in range(0, len(digits), _GROUP)))
        if not (found.is_loopback or found.is_link_local):
            yield str(found)
