"""The cycle tax: which share of processor time goes into compression, networking, serialization and the like."""
