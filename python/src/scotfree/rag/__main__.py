"""`python -m scotfree.rag`: see `scotfree.rag.cli`."""

from scotfree.rag.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
