"""The figures and tables of the characterization: from aggregates to what a page shows."""
