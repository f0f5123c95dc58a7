"""The HTTP interface of an index for programs: searches, answers in words, and its description."""
