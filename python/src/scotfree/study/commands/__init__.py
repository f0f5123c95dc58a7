"""The commands of `scot study`, a module each: `add` says its flags, `run` does it and returns the exit code."""
