"""Which methods a user means: patterns as of shells, in which case counts."""

from __future__ import annotations

from fnmatch import fnmatchcase


def matches(pattern: str, service: str, method: str) -> bool:
    """Whether it matches the method alone, `service.method` or `service method`, as it is printed."""
    return any(fnmatchcase(name, pattern) for name in (method, f"{service}.{method}", f"{service} {method}"))
