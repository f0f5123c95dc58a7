"""Traces as they come: received over OTLP/HTTP, kept in segments, and made a store of, again and again."""
