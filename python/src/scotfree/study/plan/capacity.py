"""How large a device's log and its queue must be, from how fast updates come and when they are stable.

The log holds an update from its arrival until the server has said that it is stable: rate x time to stable of
them on average (Little). Its upper bound is what the link can carry in that time, the bandwidth-delay product of
thesis Equation 3.1; the queue before the log's memory is that of Equation 3.2 (3.5.1, 3.7).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, sqrt
from typing import Final

from scotfree.study.trouble import StudyError

# `scot switch --slots` counts slots of this size, `--log ram:PATH:SIZE` updates at this size, of up to 4 KiB each.
KERNEL_SLOT_BYTES: Final = 1536
MEMORY_SLOT_BYTES: Final = 8192
MEMORY_UPDATE_BYTES_MAX: Final = 4096
# Random arrivals: so many standard deviations above the mean are not seen in a day of updates.
DEVIATIONS: Final = 6.0
# The thesis' memory (Equation 3.2).
ACCESS_NS: Final = 100.0


@dataclass(frozen=True)
class Need:
    """What the updates are."""

    rate_per_s: float
    # From arrival at the device until stable, mean and P99.
    stable_ns: float
    stable_p99_ns: float
    bytes: int
    sessions: int = 1
    link_gbit_per_s: float | None = None
    rtt_ns: float | None = None
    access_ns: float = ACCESS_NS


@dataclass(frozen=True)
class Capacity:
    """What a device needs for them."""

    # In the log on average, and with headroom.
    slots_mean: float
    slots: int
    # Of each session: a power of two.
    window: int
    log_bytes: int
    # None without a link.
    in_flight_bytes_max: int | None
    queue_bytes: int | None


def capacity(need: Need) -> Capacity:
    """Slots for a time in which all updates take as long as the slowest percent, and arrivals cluster."""
    _check(need)
    mean = need.rate_per_s * need.stable_ns / 1e9
    window = _power_of_two(_headroom(need.rate_per_s / need.sessions * need.stable_p99_ns / 1e9))
    slots = max(_headroom(need.rate_per_s * need.stable_p99_ns / 1e9), window * need.sessions)
    return Capacity(
        mean, slots, window, slots * need.bytes, _product(need, need.rtt_ns), _product(need, need.access_ns)
    )


def flags(need: Need, found: Capacity) -> list[str]:
    """The flags of `scot switch` that follow, a line each."""
    # Each session has one more than its window.
    ram = f"--log ram:/dev/shm/scot.log:{_size((found.slots + need.sessions) * MEMORY_SLOT_BYTES)}"
    shared = f"--window-max {found.window} --sessions-max {need.sessions}"
    if need.bytes > MEMORY_UPDATE_BYTES_MAX:
        raise StudyError(
            f"size a log for updates of {need.bytes} bytes: a slot takes {MEMORY_UPDATE_BYTES_MAX} at most",
            "split them, or let them bypass the log",
        )
    kernel = f"--plane xdp --slots {found.slots} {shared}"
    return [f"{ram} {shared}", *([kernel] if need.bytes <= KERNEL_SLOT_BYTES - 512 else [])]


def _headroom(mean: float) -> int:
    return max(1, ceil(mean + DEVIATIONS * sqrt(mean)))


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()


def _product(need: Need, delay_ns: float | None) -> int | None:
    """The bandwidth-delay product, in bytes."""
    if need.link_gbit_per_s is None or delay_ns is None:
        return None
    return ceil(need.link_gbit_per_s * delay_ns / 8)


def _size(count: int) -> str:
    """As `scot switch` reads sizes, rounded up to whole MiB."""
    return f"{-(-count // 2**20)}M"


def _check(need: Need) -> None:
    if min(need.rate_per_s, need.stable_ns, need.bytes, need.sessions) <= 0 or need.stable_p99_ns < need.stable_ns:
        raise StudyError(
            "size a device: rate, time to stable, bytes and sessions must be above 0, and the P99 above the mean",
            "give what your service does, as --rate 20000 --time-to-stable 2ms",
        )
