"""The commands of `scot study`, a module each: `run` does it and returns the exit code; its flags: `flags`."""
