"""From calls to aggregates: small tables that figures share. Nothing here draws."""
