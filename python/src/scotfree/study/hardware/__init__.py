"""Hardware that transforms messages (Optimus Prime and Cerebros), as models: what it would do."""
