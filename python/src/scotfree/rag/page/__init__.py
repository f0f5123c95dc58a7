"""The page: a search in the browser of this machine, with what each passage and each stage took."""
