"""What the experiments `lab/experiments/study-*.toml` measure; run by `scot lab run`, not part of the package."""
