"""`python -m scotfree.study`: see `scotfree.study.cli`."""

from scotfree.study.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
