"""How much of what exact search finds an index finds, and what that takes: `scot rag eval`."""
