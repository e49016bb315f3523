"""Influence: how far a document's vector moves when one of its parts is left out."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from lmk_viz.config import (
    AttentionConfig,
    ChunkingConfig,
    ChunkingMode,
    LayerKind,
    LayoutKind,
    PoolingConfig,
    PoolingMode,
)
from lmk_viz.embedding_encoder import EmbeddingEncoder, trained_poolings
from lmk_viz.landmarks import Layout, Tokens, chunk_sizes
from lmk_viz.pooling import POOLINGS
from lmk_viz.probes.edits import unit_borders, with_tokens, without_tokens
from lmk_viz.probes.placing import filler_head
from lmk_viz.probes.runs import (
    Embedder,
    Progress,
    ShouldStop,
    Steps,
    json_number,
    paired_cosines,
    plain_tokens,
)
from lmk_viz.text import sentence_spans

__all__ = [
    "NEUTRAL_TEXT",
    "Influence",
    "InfluenceSummary",
    "Unit",
    "leave_one_out",
    "split_units",
    "summarise_influence",
    "uncut_text",
]

NEUTRAL_TEXT = (
    "This is a sentence that says nothing in particular. It goes on for a little while, and "
    "then it stops."
)
ROWS_AT_ONCE = 32
"""Edited inputs that are held at a time."""


class Unit(StrEnum):
    """What is left out at a time."""

    CHUNK = "chunk"
    """A chunk with its landmark."""
    SENTENCE = "sentence"
    """A sentence; landmarks stay unless their whole chunk goes."""

    @classmethod
    def _missing_(cls, value: object) -> "Unit":
        allowed = ", ".join(member.value for member in cls)
        raise ValueError(f"unit is {value!r}; allowed: {allowed}.")


@dataclass(frozen=True, slots=True)
class InfluenceSummary:
    """Numbers of one pooling's influence; None where they are undefined."""

    total: float | None
    """Sum over the parts."""
    first_tenth: float | None
    """Share of the sum on the first tenth of the tokens; even influence has 0.1."""
    centre_of_mass: float | None
    """Mean position of the influence, 0 the start, 1 the end; even influence has 0.5."""
    floor: float | None
    """Mean over the places of the influence of a neutral filler of the same length."""
    above_floor: float | None
    """Share of the parts that move the vector further than the filler at their place."""
    attention_correlation: float | None
    """Pearson's r, over the parts, of influence and attention mass."""

    def to_dict(self) -> dict[str, float | None]:
        """Returns the numbers by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True, eq=False)
class Influence:
    """What each part of a document does to its vector, by pooling. M parts."""

    encoder_name: str
    trained: frozenset[PoolingMode]
    chunking: ChunkingConfig
    poolings: tuple[PoolingConfig, ...]
    unit: Unit
    borders: NDArray[np.int64]
    """Text tokens where the parts begin and end, shape (M + 1,)."""
    values: Mapping[PoolingMode, NDArray[np.float64]]
    """1 - cosine of the vectors with and without each part, each shape (M,). NaN where a stop
    left it undone."""
    floor: Mapping[PoolingMode, NDArray[np.float64]]
    """The same of a neutral filler put in front of each part and left out again. Empty where
    it was not asked for."""
    attention: Mapping[PoolingMode, NDArray[np.float64]]
    """Share of the pooling's own attention row on each part, mean over global layers and
    heads, specials left out. Only poolings that have a row, of encoders that report theirs."""
    landmark_tokens: NDArray[np.int64]
    """Text tokens before each landmark of the landmark input."""
    summaries: Mapping[PoolingMode, InfluenceSummary]
    tokens: int
    """Text tokens of the document before cutting."""
    tokens_cut: int
    """Text tokens that at least one pooling would not see; no part lies there."""
    is_partial: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types, one row a pooling."""
        return {
            "encoder": self.encoder_name,
            "chunking": self.chunking.describe(),
            "unit": self.unit.value,
            "borders": self.borders.tolist(),
            "landmark_tokens": self.landmark_tokens.tolist(),
            "tokens": self.tokens,
            "tokens_cut": self.tokens_cut,
            "is_partial": self.is_partial,
            "seconds": self.seconds,
            "rows": [
                {
                    "pooling": mode.value,
                    "trained": mode in self.trained,
                    "influence": _listed(self.values[mode]),
                    "noise_floor": _listed(self.floor.get(mode)),
                    "attention": _listed(self.attention.get(mode)),
                    **self.summaries[mode].to_dict(),
                }
                for mode in self.values
            ],
        }

    def to_frame(self) -> pd.DataFrame:
        """Returns one row a part: its tokens and, by pooling, influence, floor and attention."""
        frame = pd.DataFrame({"from_token": self.borders[:-1], "to_token": self.borders[1:]})
        for mode in self.values:
            frame[f"{mode.value}_influence"] = self.values[mode]
            if mode in self.floor:
                frame[f"{mode.value}_noise_floor"] = self.floor[mode]
            if mode in self.attention:
                frame[f"{mode.value}_attention"] = self.attention[mode]
        return frame

    def scalars_frame(self) -> pd.DataFrame:
        """Returns one row a pooling with its summary."""
        rows = [{"pooling": m.value, **s.to_dict()} for m, s in self.summaries.items()]
        return pd.DataFrame(rows)


def leave_one_out(
    encoder: EmbeddingEncoder,
    text: str,
    poolings: Sequence[PoolingConfig],
    chunking: ChunkingConfig | None = None,
    max_length: int | None = None,
    unit: Unit = Unit.CHUNK,
    neutral: str | None = NEUTRAL_TEXT,
    with_attention: bool = True,
    progress: Progress | None = None,
    should_stop: ShouldStop | None = None,
) -> Influence:
    """Returns how far the vector moves without each part of a document, by pooling.

    Parts are the same for all poolings: chunks of the landmark layout, or sentences. A chunk
    goes with its landmark, all other boundaries stay. A document of m parts takes m + 1
    forward passes a kind of input, and m more for the noise floor.

    Args:
        encoder: the encoder.
        text: the document.
        poolings: at least one.
        chunking: where landmarks go.
        max_length: longest input; None takes the encoder's usable length.
        unit: what is left out.
        neutral: text whose insertion and removal is the noise floor; None leaves it out.
        with_attention: also read the attention mass on each part, where the encoder tells.
        progress: called with passes done and passes in all.
        should_stop: asked after each batch; what is not reached by then stays NaN.

    Raises:
        ValueError: when the text has fewer than two parts, or does not leave room for the
            neutral filler.

    References:
        After arXiv 2412.15241, which leaves out sentences; the floor is ours.
    """
    started = time.monotonic()
    embedder = Embedder.build(encoder, poolings, chunking, max_length)
    text, tokens, cut = uncut_text(embedder, text)
    borders = split_units(embedder, text, tokens, Unit(unit))
    filler = None
    if neutral is not None:
        longest = int(np.diff(borders).max())
        limit = max_length or getattr(encoder, "max_length", None)
        if limit is not None and getattr(encoder, "has_hard_limit", False):
            # Room for the filler and a landmark behind it.
            short = limit - longest - 1
            if short < 3:
                raise ValueError(
                    f"a part has {longest} tokens and the input {limit}, which leaves no room for "
                    "a filler of that length; choose smaller chunks."
                )
            roomy = Embedder.build(encoder, poolings, chunking, short)
            text, tokens, more = uncut_text(roomy, text)
            cut += more
            borders = split_units(embedder, text, tokens, Unit(unit))
            longest = int(np.diff(borders).max())
        filler = _filler(encoder, neutral, longest)
    count = len(borders) - 1
    if count < 2:
        raise ValueError(
            f"the document has one {Unit(unit).value} alone, and without it nothing is left; give "
            "a longer text, or choose smaller chunks."
        )
    base = embedder.inputs(text)
    edits = _Edits(base, tokens, borders, filler)
    steps = Steps(len(edits) * len(embedder.kinds), progress, should_stop)
    vectors = {
        mode: np.full((len(edits), encoder.embedding_dim), np.nan) for mode in embedder.modes
    }
    for first in range(0, len(edits), ROWS_AT_ONCE):
        if steps.is_stopped:
            break
        rows = [edits[row] for row in range(first, min(first + ROWS_AT_ONCE, len(edits)))]
        for mode, found in embedder.embed(rows, steps).items():
            vectors[mode][first : first + len(rows)] = found
    values, floor = {}, {}
    for mode, found in vectors.items():
        values[mode] = 1.0 - paired_cosines(found[1 : count + 1], found[0])
        if filler is not None:
            floor[mode] = 1.0 - paired_cosines(found[count + 1 :], found[0])
    attention = (
        _attention_shares(embedder, base, tokens, borders)
        if with_attention and not steps.is_stopped
        else {}
    )
    marked = base.get(LayoutKind.LANDMARK)
    return Influence(
        encoder_name=encoder.name,
        trained=trained_poolings(encoder),
        chunking=embedder.chunking,
        poolings=embedder.poolings,
        unit=Unit(unit),
        borders=borders,
        values=values,
        floor=floor,
        attention=attention,
        landmark_tokens=_landmark_tokens(marked),
        summaries={
            mode: summarise_influence(values[mode], borders, floor.get(mode), attention.get(mode))
            for mode in values
        },
        tokens=len(tokens) + cut,
        tokens_cut=cut,
        is_partial=steps.done < steps.total,
        seconds=time.monotonic() - started,
    )


def uncut_text(embedder: Embedder, text: str) -> tuple[str, Tokens, int]:
    """Returns the part of a text that every pooling sees whole, its last landmark included.

    Returns:
        The text, its tokens, and how many tokens behind them were left out.

    Raises:
        ValueError: when it has no token.
    """
    whole = plain_tokens(embedder.encoder, text)
    tokens = whole
    while True:
        kept = min(map(_whole_chars, embedder.inputs(text).values()))
        if kept >= len(text):
            break
        text = text[:kept]
        tokens = plain_tokens(embedder.encoder, text)
    if not len(tokens):
        raise ValueError("the document has no token to look at; give a text with words in it.")
    return text, tokens, max(0, len(whole) - len(tokens))


def split_units(embedder: Embedder, text: str, tokens: Tokens, unit: Unit) -> NDArray[np.int64]:
    """Returns the text tokens where parts begin and end, shape (M + 1,)."""
    n = len(tokens)
    if unit is Unit.CHUNK and embedder.chunking.mode is not ChunkingMode.SENTENCE:
        sizes, _ = chunk_sizes(tokens, embedder.chunking)
        return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    if unit is Unit.CHUNK:
        marked = embedder.encoder.layout(
            text, LayoutKind.LANDMARK, embedder.chunking, embedder.max_length
        )
        begins = [chunk.char_start for chunk in marked.chunks]
    else:
        begins = [start for start, _ in sentence_spans(text)]
    inner = np.searchsorted(tokens.ends, begins[1:], side="right")
    return np.unique(np.concatenate([[0], inner, [n]]).astype(np.int64))


def summarise_influence(
    values: NDArray[np.float64],
    borders: NDArray[np.int64],
    floor: NDArray[np.float64] | None = None,
    attention: NDArray[np.float64] | None = None,
) -> InfluenceSummary:
    """Returns the numbers of one pooling's influence; parts that are NaN are left out.

    Args:
        values: of each part, shape (M,).
        borders: of the parts in tokens, shape (M + 1,).
        floor: the neutral filler's, shape (M,).
        attention: mass on each part, shape (M,).
    """
    known = np.isfinite(values)
    total = float(values[known].sum()) if known.any() else None
    first = centre = None
    if total is not None and total > 0 and known.all():
        n = float(borders[-1])
        inside = np.clip(n / 10 - borders[:-1], 0, np.diff(borders)) / np.diff(borders)
        first = float(values @ inside) / total
        centre = float(values @ ((borders[:-1] + borders[1:]) / 2 / n)) / total
    mean_floor = above = None
    if floor is not None and (both := known & np.isfinite(floor)).any():
        mean_floor = float(floor[both].mean())
        above = float((values[both] > floor[both]).mean())
    correlation = None
    if attention is not None and known.all() and len(values) > 2:
        spreads = float(values.std()), float(attention.std())
        if min(spreads) > 1e-12:
            correlation = float(np.corrcoef(values, attention)[0, 1])
    return InfluenceSummary(total, first, centre, mean_floor, above, correlation)


def _whole_chars(layout: Layout) -> int:
    """Returns the characters up to which a layout has all tokens and their landmark."""
    if layout.n_cut:
        return layout.kept_chars
    if layout.n_tail:
        # The last landmark alone was cut; a token less makes room for it.
        return int(layout.tokens.starts[-1])
    return len(layout.text)


def _filler(encoder: EmbeddingEncoder, neutral: str, count: int) -> Tokens:
    """Returns a neutral text of so many tokens, repeated as often as it takes."""
    size = len(plain_tokens(encoder, neutral))
    if not size:
        raise ValueError("the neutral text has no token; give one with words in it, or None.")
    repeated = " ".join([neutral] * (count // size + 2))
    return filler_head(plain_tokens(encoder, repeated), count, "neutral text")


@dataclass(frozen=True, slots=True, eq=False)
class _Edits:
    """The document, itself without each part and, if wanted, with filler before each part.

    Made one by one when asked for, since those of a long document together are large.
    """

    base: Mapping[LayoutKind, Layout]
    tokens: Tokens
    borders: NDArray[np.int64]
    filler: Tokens | None

    def __len__(self) -> int:
        return 1 + (len(self.borders) - 1) * (1 if self.filler is None else 2)

    def __getitem__(self, row: int) -> dict[LayoutKind, Layout]:
        if row == 0:
            return dict(self.base)
        filled, part = divmod(row - 1, len(self.borders) - 1)
        edit = self._filled if filled else self._without
        return {kind: edit(layout, part) for kind, layout in self.base.items()}

    def _span(self, layout: Layout, part: int) -> tuple[int, int]:
        own = unit_borders(layout, self.tokens, self.borders)
        return int(own[part]), int(own[part + 1])

    def _without(self, layout: Layout, part: int) -> Layout:
        start, end = self._span(layout, part)
        # A layout of other tokens may have none of a part that is white space alone.
        return layout if start == end else without_tokens(layout, start, end)

    def _filled(self, layout: Layout, part: int) -> Layout:
        start, end = self._span(layout, part)
        if self.filler is None or start == end:
            return layout
        without = without_tokens(layout, start, end)
        # As many special tokens come with the filler as go with the part.
        loses_mark = without.n_landmarks < layout.n_landmarks or (
            layout.kind is LayoutKind.MULTI_CLS
            and len(without.cls_positions) < len(layout.cls_positions)
        )
        begins = any(chunk.token_start == start for chunk in layout.chunks)
        size = int(self.borders[part + 1] - self.borders[part])
        head = filler_head(self.filler, size, "neutral text")
        return with_tokens(layout, start, head, closed=loses_mark and begins)


def _attention_shares(
    embedder: Embedder,
    base: Mapping[LayoutKind, Layout],
    tokens: Tokens,
    borders: NDArray[np.int64],
) -> dict[PoolingMode, NDArray[np.float64]]:
    """Returns the share of each pooling's attention row on each part, where it can be read."""
    shares = {}
    for mode in embedder.modes:
        family: Any = embedder.encoder
        encoder = family.encoder_for(mode) if hasattr(family, "encoder_for") else family
        layout = base[POOLINGS[mode].layout]
        if not hasattr(encoder, "attention_profile"):
            continue
        try:
            profile = encoder.attention_profile(
                layout, AttentionConfig(bins=min(layout.n_kept, AttentionConfig.MAX_BINS))
            )
        except ValueError:
            continue  # Its class does not report attention; the probe can do without.
        if mode not in profile.rows:
            continue
        # Local layers cannot see further than their window, so the two kinds are never mixed.
        layers = profile.layers_of(LayerKind.GLOBAL) or tuple(range(profile.n_layers))
        mass = profile.weight_per_token(mode, layers) * np.diff(profile.edges)
        before = np.concatenate([[0.0], np.cumsum(mass)])
        own = unit_borders(layout, tokens, borders)
        shares[mode] = np.diff(np.interp(own, profile.edges, before))
    return shares


def _landmark_tokens(layout: Layout | None) -> NDArray[np.int64]:
    if layout is None:
        return np.zeros(0, dtype=np.int64)
    before: NDArray[np.int64] = np.cumsum(layout.token_index >= 0, dtype=np.int64)
    return before[layout.landmark_positions]


def _listed(values: NDArray[np.float64] | None) -> list[float | None] | None:
    return None if values is None else [json_number(value) for value in values]
