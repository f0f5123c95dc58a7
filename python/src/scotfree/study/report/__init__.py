"""The report: from figures to one self-contained page, and the Parquet of every aggregate beside it."""
