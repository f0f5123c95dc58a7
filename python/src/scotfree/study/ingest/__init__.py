"""From files to the store: readers of forms, the merging of sides to calls, the ledger of what was not merged."""
