"""Files of TOML that the user writes."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from scotfree.study.trouble import StudyError


def read(path: Path, what: str, advice: str) -> dict[str, Any]:
    """What is in one; whatever is wrong with it is a `StudyError` that begins with what was wanted of it."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise StudyError(f"{what} {path}: its lists are nested too deeply", advice) from None
    except OSError as error:
        raise StudyError(f"{what} {path}: {error.strerror or error}", advice) from None
    except ValueError as error:
        raise StudyError(f"{what} {path}: {error}", advice) from None
