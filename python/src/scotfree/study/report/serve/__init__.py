"""What does not fit into a report: from the fleet down to the nine stages of one call, in a browser."""
