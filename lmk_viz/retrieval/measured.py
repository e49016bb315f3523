"""Measurements that lie beside an encoder's weights, as its makers took them."""

import json
from pathlib import Path
from typing import Any

from lmk_viz.retrieval.extrapolation import ExtrapolationRow

__all__ = ["EXTRAPOLATION_FILE", "load_measured"]

EXTRAPOLATION_FILE = "evaluation/extrapolation.json"
"""What `extrapolate --output` wrote, in the folder of an encoder."""
MAX_BYTES = 20_000_000


def load_measured(folder: str | Path) -> dict[str, Any] | None:
    """Returns the extrapolation measured for an encoder; None where its folder has none.

    Args:
        folder: of the encoder; a hub id is no folder and has none.

    Returns:
        `settings`, `baseline` and `rows` as `Extrapolation.to_dict` gives them.

    Raises:
        ValueError: when the file is there and cannot be read.
    """
    file = Path(folder) / EXTRAPOLATION_FILE
    if not file.is_file():
        return None
    if file.stat().st_size > MAX_BYTES:
        raise ValueError(f"{file.name} is larger than {MAX_BYTES:,} bytes; it is not read.")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        rows = [ExtrapolationRow.from_dict(row) for row in found["rows"]]
        settings = dict(found["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file.name} cannot be read: {error}") from error
    if not rows:
        return None
    return {**found, "settings": settings}
