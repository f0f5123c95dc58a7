"""What was found, in a better order: by a model that reads question and passage together."""
