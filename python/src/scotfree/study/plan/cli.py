"""The command `scot plan`: what each remedy would leave of a user's own calls.

`scot plan DATA…` prices every remedy, `scot plan fit` makes the fit that a remedy's forecast rests on, `scot plan
capacity` sizes a device, `scot plan offload` says what hardware for messages would leave of a call.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from scotfree import command_line, short_lived
from scotfree.command_line import Commands
from scotfree.study import outside
from scotfree.study.without_pandas import without_pandas

COMMANDS = Commands(
    "scotfree.study.plan.commands.flags",
    {
        "price": "forecast what every remedy would leave of the calls in DATA (the default command)",
        "fit": "fit a remedy's forecast on calls made on this machine, without and with it in turns",
        "capacity": "size a device's log and queue, from flags or from the updates in DATA",
        "offload": "what hardware that transforms messages would leave of a call's RPC layer, from its cycles",
    },
)
DESCRIPTION = (
    "Forecasts what each remedy would leave of your own calls. `scot plan DATA…` is `scot plan price DATA…`."
)
DEFAULT = "price"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit code (see `command_line`)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] not in (*COMMANDS.helps, "-h", "--help"):
        words.insert(0, DEFAULT)
    if arguments is None:
        without_pandas(words)
        short_lived.begin()
    code = command_line.run("scot plan", DESCRIPTION, COMMANDS, words, outside.told)
    return short_lived.leave(code) if arguments is None else code


if __name__ == "__main__":
    raise SystemExit(main())
