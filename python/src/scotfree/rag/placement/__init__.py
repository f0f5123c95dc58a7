"""Which passages' exact values lie beside the codes, and how that is chosen."""
