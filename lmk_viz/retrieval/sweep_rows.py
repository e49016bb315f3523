"""What a sweep finds: a row a setting, with intervals, differences, costs and a recommendation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.corpus import Excluded
from lmk_viz.retrieval.metrics import Interval, bootstrap_interval
from lmk_viz.retrieval.recommend import Candidate, Recommendation, recommend
from lmk_viz.retrieval.sweep_settings import SweepConfig, SweepSetting, settings_code

__all__ = ["Sweep", "SweepRow"]


@dataclass(frozen=True, slots=True, eq=False)
class SweepRow:
    """How one setting did, and what it costs."""

    setting: SweepSetting
    trained: bool
    """Whether the encoder was trained for the pooling."""
    per_query: Mapping[str, NDArray[np.float64]]
    """Values by metric, each shape (Q,), queries in the order of the data set."""
    landmarks_per_document: float
    """Landmarks, or CLS tokens beyond the first, of a document, on average."""
    overhead: float
    """The same in the whole corpus, a text token that went in; 0.03 is three in a hundred."""
    tokens_per_document: float
    """That the encoder read of a document, special tokens included, on average."""
    documents_cut: int
    """Documents that lost tokens to the length limit."""
    seconds: float
    """Of embedding documents and queries, as if the pooling were the only one of its pass; from
    a cache, what it took when it was embedded."""

    @property
    def name(self) -> str:
        """The setting's name."""
        return self.setting.name


@dataclass(frozen=True, slots=True, eq=False)
class Sweep:
    """Rows of one encoder on one data set, complete or up to a stop."""

    dataset: str
    encoder_name: str
    config: SweepConfig
    max_length: int | None
    with_titles: bool
    documents: int
    query_ids: tuple[str, ...]
    baseline: str
    """Name of the row that differences are taken to; after a stop it may be missing."""
    rows: tuple[SweepRow, ...]
    rows_wanted: int
    excluded: tuple[Excluded, ...]
    """Documents and queries that have no vector; such a query counts 0."""
    notes: tuple[str, ...]
    is_partial: bool

    def row(self, name: str) -> SweepRow:
        """Returns the row of a name.

        Raises:
            ValueError: when there is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        known = ", ".join(row.name for row in self.rows) or "none"
        raise ValueError(f"row is {name!r}; allowed: {known}.")

    def interval(self, row: SweepRow, metric: str) -> Interval:
        """Returns the mean of a metric with its 95 % bootstrap interval."""
        return bootstrap_interval(row.per_query[metric], self.config.seed)

    def difference(self, row: SweepRow, metric: str) -> Interval | None:
        """Returns a row less the baseline, query by query; None for the baseline, or without."""
        against = next((other for other in self.rows if other.name == self.baseline), None)
        if against is None or against is row:
            return None
        return bootstrap_interval(
            row.per_query[metric] - against.per_query[metric], self.config.seed
        )

    def recommendation(self, metric: str | None = None) -> Recommendation | None:
        """Returns which setting to take by a metric, else the first; None for fewer than two rows.

        Raises:
            ValueError: when the metric was not measured.
        """
        metric = metric or self.config.metrics[0]
        if metric not in self.config.metrics:
            raise ValueError(
                f"metric is {metric!r}; measured were {', '.join(self.config.metrics)}."
            )
        if len(self.rows) < 2:
            return None
        candidates = [
            Candidate(row.name, row.per_query[metric], row.tokens_per_document, row.seconds)
            for row in self.rows
        ]
        return recommend(candidates, metric, self.config.seed)

    def label(self, name: str) -> str:
        """Returns a row's name in words."""
        return self.row(name).setting.label

    def settings(self, name: str, encoder: str) -> dict[str, Any]:
        """Returns what applies a row, as plain JSON types.

        Args:
            name: of the row.
            encoder: name or folder that the encoder is loaded by.
        """
        return {
            "encoder": encoder,
            **self.row(name).setting.to_dict(),
            "max_length": self.max_length,
        }

    def code(self, name: str, encoder: str) -> str:
        """Returns the lines of Python that apply a row; arguments as of `settings`."""
        return settings_code(self.row(name).setting, encoder, self.max_length)

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a setting, the numbers of `to_dict` as columns."""
        records = []
        for row in self.row_dicts():
            difference = row.pop("difference") or {}
            records.append(row | {f"minus_baseline_{k}": v for k, v in difference.items()})
        return pd.DataFrame(records)

    def row_dicts(self) -> list[dict[str, Any]]:
        """Returns the rows as plain JSON types."""
        found = []
        for row in self.rows:
            values: dict[str, Any] = {
                "name": row.name,
                "pooling": row.setting.pooling.mode.value,
                "granularity": row.setting.granularity,
                "trained": row.trained,
            }
            difference: dict[str, float] = {}
            for metric in self.config.metrics:
                values |= self.interval(row, metric).to_dict(metric)
                against = self.difference(row, metric)
                difference |= against.to_dict(metric) if against else {}
            found.append(
                values
                | {
                    "difference": difference or None,
                    "landmarks_per_document": row.landmarks_per_document,
                    "overhead": row.overhead,
                    "tokens_per_document": row.tokens_per_document,
                    "documents_cut": row.documents_cut,
                    "seconds": row.seconds,
                }
            )
        return found

    def to_dict(self, encoder: str | None = None) -> dict[str, Any]:
        """Returns plain JSON types.

        Args:
            encoder: name or folder that the encoder is loaded by; None takes its name.
        """
        chosen = self.recommendation()
        recommendation = None
        if chosen is not None:
            loaded_by = encoder or self.encoder_name
            setting = self.row(chosen.name).setting
            recommendation = {
                "pooling": setting.pooling.mode.value,
                "granularity": setting.granularity,
                **chosen.to_dict(),
                "words": chosen.words(self.label),
                "settings": self.settings(chosen.name, loaded_by),
                "python": self.code(chosen.name, loaded_by),
            }
        return {
            "dataset": self.dataset,
            "encoder": self.encoder_name,
            "documents": self.documents,
            "queries": len(self.query_ids),
            "with_titles": self.with_titles,
            "max_length": self.max_length,
            "query_granularity": self.config.query_granularity,
            "metrics": list(self.config.metrics),
            "baseline": self.baseline,
            "is_partial": self.is_partial,
            "rows": self.row_dicts(),
            "recommendation": recommendation,
            "excluded": [{"id": e.id, "reason": e.reason} for e in self.excluded],
            "notes": list(self.notes),
        }
