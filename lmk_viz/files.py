"""Writing files so that a reader never sees half of one."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["write_text", "write_whole"]


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Writes beside a file and then puts it in the file's place.

    An interrupt in the middle of writing leaves what was there before.

    Args:
        path: of the file.
        write: writes to the path that it is given.

    Raises:
        ValueError: when it cannot be written.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(partial)
        partial.replace(path)
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror}.") from error
    finally:
        # What kept it from being written can keep it from being looked for, too.
        with contextlib.suppress(OSError):
            partial.unlink()


def write_text(text: str, path: Path) -> None:
    """Writes a text file in UTF-8, whole.

    Raises:
        ValueError: when it cannot be written.
    """
    write_whole(path, lambda partial: partial.write_text(text, encoding="utf-8"))
