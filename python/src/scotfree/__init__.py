"""Scotfree: what of a remote procedure call's time is tax, and what takes it off."""

__version__ = "0.2.0"
