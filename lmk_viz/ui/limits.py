"""What an operator may fix for all users, through environment variables."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of this installation."""

    encoders: tuple[str, ...] = ()
    """Names that may be loaded; empty allows any. `LMK_VIZ_ENCODERS`, separated by commas."""
    device: str = "auto"
    """Where encoders run. `LMK_VIZ_DEVICE`."""
    max_length: int = 32_768
    """Longest input in tokens. `LMK_VIZ_MAX_LENGTH`."""
    memory_bytes: int | None = None
    """Most memory that one run may plan for; None for what is free. `LMK_VIZ_MEMORY_GB`."""
    max_documents: int = 2_000
    """Most documents of a corpus that are embedded at once. `LMK_VIZ_MAX_DOCUMENTS`."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Limits":
        """Returns the settings of this process.

        Raises:
            ValueError: when a variable is set to something else than it takes.
        """

        def number(name: str, default: int, low: int) -> int:
            raw = environment.get(name)
            if raw is None:
                return default
            if not raw.isdecimal() or int(raw) < low:
                raise ValueError(f"{name} is {raw!r}; allowed: a whole number of {low} or more.")
            return int(raw)

        names = environment.get("LMK_VIZ_ENCODERS", "")
        return cls(
            encoders=tuple(name.strip() for name in names.split(",") if name.strip()),
            device=environment.get("LMK_VIZ_DEVICE", "auto"),
            max_length=number("LMK_VIZ_MAX_LENGTH", 32_768, 16),
            memory_bytes=_gigabytes(environment.get("LMK_VIZ_MEMORY_GB")),
            max_documents=number("LMK_VIZ_MAX_DOCUMENTS", 2_000, 1),
        )


def _gigabytes(raw: str | None) -> int | None:
    if raw is None:
        return None
    try:
        value = float(raw)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise ValueError(f"LMK_VIZ_MEMORY_GB is {raw!r}; allowed: a number over 0, such as 4.")
    return int(value * 2**30)
