"""What the commands of `scot study` take, a module each: `add` says the flags, `run` imports what it works with.

Nothing here imports a library that takes long to: `--help` is not to wait for it.
"""
