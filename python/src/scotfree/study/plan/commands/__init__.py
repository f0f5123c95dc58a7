"""The commands of `scot plan`, a module each, as those of `scot study`."""
