"""Choices that survive page changes and stand in the URL.

A choice lives in the session under a key that no widget owns. The widget's key is the same
with a leading underscore; it is assigned from the shared key on every run and copied back in
`on_change`. Streamlit forgets a widget's own key as soon as a page without that widget runs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import streamlit as st

from lmk_viz.config import (
    DEFAULT_GRANULARITIES,
    DEFAULT_GRANULARITY,
    MAX_GRANULARITY,
    AttentionConfig,
    ChunkingConfig,
    ChunkingMode,
    LayoutKind,
    PoolingMode,
    ProjectionConfig,
    ProjectionMethod,
)
from lmk_viz.presets import DEFAULT_NAME, canonical_name
from lmk_viz.ui.text import escape_markdown

__all__ = ["Choice", "sync_url"]

T = TypeVar("T")

_WRITTEN = "url.written"


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One setting: where it is kept, how it is written, what it is at first."""

    key: str
    """Session key, `page.field`."""
    param: str
    """Name in the URL."""
    default: T
    parse: Callable[[str], T]
    """Reads a URL value; raises ValueError for anything else than this kind of value."""
    write: Callable[[T], str] = str
    to_widget: Callable[[T], Any] = lambda value: value
    from_widget: Callable[[Any], T] = lambda value: value
    """Widgets hold lists where choices hold tuples."""

    def get(self) -> T:
        """Returns what is chosen."""
        value: T = st.session_state.get(self.key, self.default)
        return value

    def set(self, value: T) -> None:
        """Chooses a value."""
        st.session_state[self.key] = value

    def widget(self) -> dict[str, Any]:
        """Returns the arguments that tie a widget to this choice."""
        shadow = f"_{self.key}"
        st.session_state[shadow] = self.to_widget(self.get())

        def copy_back() -> None:
            self.set(self.from_widget(st.session_state[shadow]))

        return {"key": shadow, "on_change": copy_back}


def sync_url(choices: Sequence[Choice[Any]]) -> None:
    """Takes over what the URL says that we did not write ourselves, then writes it anew.

    Call first on a page. Values that cannot be read are named and ignored, so that a link
    from elsewhere can break nothing.

    Args:
        choices: all that this page shows.
    """
    written: dict[str, str] = st.session_state.setdefault(_WRITTEN, {})
    for choice in choices:
        raw = st.query_params.get(choice.param)
        if raw is not None and raw != written.get(choice.param):
            try:
                choice.set(choice.parse(raw))
            except (ValueError, TypeError) as error:
                # Anyone can write a link, so what it says is shown letter by letter.
                st.warning(
                    f"The link's `{choice.param}` was left out: {escape_markdown(str(error))}",
                    icon=":material/link_off:",
                )
        value = choice.get()
        if value == choice.default:
            written.pop(choice.param, None)
            if raw is not None:
                del st.query_params[choice.param]
        else:
            written[choice.param] = choice.write(value)
            if raw != written[choice.param]:
                st.query_params[choice.param] = written[choice.param]


def _flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError(f"{text!r} came; allowed: 0, 1.")
    return text == "1"


def _write_flag(value: bool) -> str:
    return str(int(value))


def _whole(text: str) -> int:
    # int() reads signs, blanks and underscores too, and its own message is for programmers.
    if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdecimal()):
        raise ValueError(f"{text[:40]!r} came; a whole number is expected.")
    return int(text)


def _sizes(text: str) -> tuple[int, ...]:
    sizes = tuple(_whole(size) for size in text.split("-"))
    if min(sizes) < 1 or max(sizes) > MAX_GRANULARITY:
        raise ValueError(
            f"{text[:40]!r} came; allowed: sizes of 1 to {MAX_GRANULARITY:,}, as in 32-64-128."
        )
    return tuple(dict.fromkeys(sizes))


def _places(text: str) -> tuple[int, ...]:
    places = tuple(dict.fromkeys(_whole(place) for place in text.split("-")))
    if len(places) > MAX_SINGLE:
        raise ValueError(f"{len(places)} landmarks came; allowed: {MAX_SINGLE} at most.")
    return places


def _language(text: str) -> str:
    ChunkingConfig(language=text)  # Its message names what is allowed.
    return text


def _write_sizes(sizes: tuple[int, ...]) -> str:
    return "-".join(map(str, sizes))


def _count(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = _whole(text)
        if not low <= value <= high:
            raise ValueError(f"{value} came; allowed: {low:,} to {high:,}.")
        return value

    return parse


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text!r} came; allowed: {', '.join(allowed)}.")
        return text

    return parse


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_name(name) for name in text.split("~")))


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} came; a number is expected.") from error
    if not 0.0 <= value <= 1.0:
        raise ValueError(f"{text} came; allowed: 0 to 1.")
    return value


def _modes(text: str) -> tuple[PoolingMode, ...]:
    modes = tuple(PoolingMode(name) for name in text.split("-"))
    return tuple(dict.fromkeys(modes))


def _poolings_choice(
    key: str, param: str, default: tuple[PoolingMode, ...]
) -> Choice[tuple[PoolingMode, ...]]:
    """Returns a choice of several poolings, in the URL as `cls-mean`."""
    return Choice(
        key,
        param,
        default,
        _modes,
        lambda modes: "-".join(mode.value for mode in modes),
        list,
        tuple,
    )


def _name(text: str) -> str:
    if not text or len(text) > 512 or not text.isprintable():
        raise ValueError("a name of at most 512 printable characters is expected.")
    return text


def _encoder(text: str) -> str:
    return canonical_name(_name(text))


def _sorted_tuple(values: list[int]) -> tuple[int, ...]:
    return tuple(sorted(values))


MAX_SENTENCE_CAP = 100_000
MAX_SINGLE = 4
"""Single landmarks that are drawn at once; more cannot be told apart."""
PASTED = "pasted"
UPLOADED = "uploaded"

ENCODER = Choice("shared.encoder", "encoder", DEFAULT_NAME, _encoder)
ONE_BACKBONE = Choice("shared.one_backbone", "one", False, _flag, _write_flag)
"""Of a family: every pooling reads the backbone, which was not trained for most of them."""
TEXT = Choice("shared.text", "", "", str)
"""The pasted text; never in the URL."""
DOCUMENT = Choice("shared.document", "doc", "town_almanac", _name)
MODE = Choice("shared.mode", "chunking", ChunkingMode.FIXED, ChunkingMode, lambda m: m.value)
GRANULARITY = Choice("shared.granularity", "g", DEFAULT_GRANULARITY, _count(1, MAX_GRANULARITY))
GRANULARITIES: Choice[tuple[int, ...]] = Choice(
    "shared.granularities",
    "gs",
    DEFAULT_GRANULARITIES,
    _sizes,
    _write_sizes,
    list,
    _sorted_tuple,
)
PER_CHUNK = Choice("shared.per_chunk", "per_chunk", False, _flag, _write_flag)
SEED = Choice("shared.seed", "seed", 0, _count(0, 2**32 - 1))
LANGUAGE = Choice("shared.language", "lang", "", _language)
SENTENCE_CAP = Choice("shared.sentence_cap", "cap", 256, _count(1, MAX_SENTENCE_CAP))
CLOSE_TAIL = Choice("shared.close_tail", "close", False, _flag, _write_flag)
MAX_LENGTH = Choice("shared.max_length", "limit", 0, _count(0, 1_000_000))
"""0 stands for the encoder's own usable length."""

SHARED: tuple[Choice[Any], ...] = (
    ENCODER,
    ONE_BACKBONE,
    DOCUMENT,
    MODE,
    GRANULARITY,
    GRANULARITIES,
    PER_CHUNK,
    SEED,
    LANGUAGE,
    SENTENCE_CAP,
    CLOSE_TAIL,
    MAX_LENGTH,
)

COMPARE = Choice("landmarks.compare", "compare", False, _flag, _write_flag)
SECOND = Choice("landmarks.second", "g2", 128, _count(1, MAX_GRANULARITY))
SHOW_TOKENS = Choice("landmarks.tokens", "tokens", False, _flag, _write_flag)
LANDMARKS_PAGE: tuple[Choice[Any], ...] = (COMPARE, SECOND, SHOW_TOKENS)

QUERY = Choice("landmarks.query", "", "", str)
"""What is asked of the document; never in the URL."""

INPUT = Choice("attention.input", "input", LayoutKind.LANDMARK, LayoutKind, lambda k: k.value)
GROUP = Choice("attention.group", "layers", "global", _name)
LAYER = Choice("attention.layer", "layer", 0, _count(0, 1000))
HEAD = Choice("attention.head", "head", -1, _count(-1, 1000))
"""-1 stands for the mean over heads."""
BINS = Choice("attention.bins", "bins", AttentionConfig().bins, _count(1, 1024))
LOG = Choice("attention.log", "log", True, _flag, _write_flag)
RANDOM = Choice("attention.random", "random", False, _flag, _write_flag)
SINGLE: Choice[tuple[int, ...]] = Choice(
    "attention.single", "single", (), _places, _write_sizes, list, _sorted_tuple
)
AXIS = Choice("attention.axis", "axis", "position", _one_of("position", "distance"))
MAP_ROW = Choice("attention.map_row", "row", PoolingMode.CLS, PoolingMode, lambda m: m.value)
MAP_SCALAR = Choice("attention.map_scalar", "scalar", "first_tenth", _name)
SECOND_ENCODER = Choice("attention.second", "encoder2", "", _encoder)
OTHERS: Choice[tuple[str, ...]] = Choice(
    "attention.others", "docs", (), _names, lambda names: "~".join(names), list, tuple
)
ATTENTION_PAGE: tuple[Choice[Any], ...] = (
    INPUT,
    GROUP,
    LAYER,
    HEAD,
    BINS,
    LOG,
    RANDOM,
    SINGLE,
    AXIS,
    MAP_ROW,
    MAP_SCALAR,
    SECOND_ENCODER,
    OTHERS,
)

POOLINGS = _poolings_choice(
    "map.poolings", "poolings", (PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK)
)
METHOD = Choice("map.method", "method", ProjectionMethod.AUTO, ProjectionMethod, lambda m: m.value)
NEIGHBOURS = Choice("map.n_neighbors", "k", 15, _count(2, 200))
MIN_DIST = Choice("map.min_dist", "min_dist", 0.1, _share)
MAP_SEED = Choice("map.seed", "map_seed", 0, _count(0, 2**32 - 1))
CORPUS = Choice("map.corpus", "corpus", "bundled", _name)
METRIC = Choice(
    "map.metric", "metric", ProjectionConfig().metric, _one_of(*ProjectionConfig.METRICS)
)
COLOUR = Choice("map.colour", "colour", "label", _name)
POINTER = Choice("map.pointer", "pointer", "lasso", _one_of("lasso", "click"))
ROW_LIMIT = Choice("map.rows", "rows", 2_000, _count(1, 20_000))
ROW_SEED = Choice("map.row_seed", "row_seed", 0, _count(0, 2**32 - 1))
STABILITY = Choice("map.stability", "stability", False, _flag, _write_flag)
LANDMARK_POINTS = Choice("map.landmarks", "points", False, _flag, _write_flag)
HUB_NAME = Choice("map.hub_name", "dataset", "", _name)
HUB_SPLIT = Choice("map.hub_split", "split", "train", _name)
HUB_CONFIG = Choice("map.hub_config", "subset", "", _name)
MAP_PAGE: tuple[Choice[Any], ...] = (
    CORPUS,
    POOLINGS,
    METHOD,
    NEIGHBOURS,
    MIN_DIST,
    MAP_SEED,
    METRIC,
    COLOUR,
    POINTER,
    ROW_LIMIT,
    ROW_SEED,
    STABILITY,
    LANDMARK_POINTS,
    HUB_NAME,
    HUB_SPLIT,
    HUB_CONFIG,
)

FOCUS = Choice("map.focus", "focus", "", str)
"""Id of the document whose neighbours are listed; not in the URL, as ids come from users."""
SELECTED: Choice[tuple[str, ...]] = Choice("map.selected", "selected", (), _names)
"""Ids of the documents that are brought out in every panel; not in the URL either."""
TEXT_COLUMN = Choice("map.text_column", "text_column", "", str)
TITLE_COLUMN = Choice("map.title_column", "title_column", "", str)
LABEL_COLUMN = Choice("map.label_column", "label_column", "", str)
"""Of an uploaded table; empty for what is guessed."""

PROBE_VIEWS = ("needle", "influence", "segments", "shuffle", "dilution", "length")
PROBE_VIEW = Choice("probe.view", "view", "needle", _one_of(*PROBE_VIEWS))
PROBE_POOLINGS = _poolings_choice(
    "probe.poolings",
    "probed",
    (PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.EVERY_K, PoolingMode.LANDMARK),
)
PROBE_OF = Choice(
    "probe.of", "of", "needle", _one_of("needle", "influence", "segments", "shuffle", "dilution")
)
"""What is measured by length."""
PROBE_TOKENS = Choice("probe.tokens", "length", 512, _count(8, 100_000))
PROBE_BASE = Choice("probe.base", "base", 64, _count(8, 10_000))
"""The shortest of four lengths, each twice the one before."""
PROBE_NEEDLES = Choice("probe.needles", "needles", 10, _count(1, 1000))
PROBE_DEPTHS = Choice("probe.depths", "depths", 10, _count(2, 100))
PROBE_BORDER = Choice("probe.border", "border", "sentence", _one_of("sentence", "token"))
PROBE_FILLER = Choice("probe.filler", "filler", "bundled", _one_of("bundled", "document"))
PROBE_FILLERS = Choice("probe.fillers", "fillers", 1, _count(1, 4))
PROBE_SEED = Choice("probe.seed", "probe_seed", 0, _count(0, 2**32 - 1))
PROBE_RANDOM = Choice("probe.random", "random_weights", False, _flag, _write_flag)
PROBE_CENTRED = Choice("probe.centred", "centred", False, _flag, _write_flag)
PROBE_UNIT = Choice("probe.unit", "unit", "chunk", _one_of("chunk", "sentence"))
PROBE_FLOOR = Choice("probe.floor", "floor", True, _flag, _write_flag)
PROBE_SHARE = Choice("probe.share", "share", True, _flag, _write_flag)
PROBE_SHUFFLES = Choice("probe.shuffles", "orders", 8, _count(1, 100))
PROBE_SHUFFLED = Choice("probe.shuffled", "shuffled", False, _flag, _write_flag)
PROBE_SIDE = Choice("probe.side", "side", "after", _one_of("after", "before", "around"))
PROBE_PAGE: tuple[Choice[Any], ...] = (
    PROBE_VIEW,
    PROBE_OF,
    PROBE_POOLINGS,
    PROBE_TOKENS,
    PROBE_BASE,
    PROBE_NEEDLES,
    PROBE_DEPTHS,
    PROBE_BORDER,
    PROBE_FILLER,
    PROBE_FILLERS,
    PROBE_SEED,
    PROBE_RANDOM,
    PROBE_CENTRED,
    PROBE_UNIT,
    PROBE_FLOOR,
    PROBE_SHARE,
    PROBE_SHUFFLES,
    PROBE_SHUFFLED,
    PROBE_SIDE,
)
OWN_FACT = Choice("probe.own_fact", "", "", str)
OWN_QUESTION = Choice("probe.own_question", "", "", str)
"""A needle of the user's own; never in the URL."""

DATASETS = ("bundled", "tables", "beir", "documents")
DATASET = Choice("retrieval.dataset", "data", "bundled", _one_of(*DATASETS))
DATA_TITLES = Choice("retrieval.titles", "titles", False, _flag, _write_flag)
DATA_PLACE = Choice(
    "retrieval.place", "taken", "spread", _one_of("start", "middle", "end", "spread")
)
DATA_SEED = Choice("retrieval.seed", "data_seed", 0, _count(0, 2**32 - 1))
RETRIEVAL_DATA: tuple[Choice[Any], ...] = (DATASET, DATA_TITLES, DATA_PLACE, DATA_SEED)
"""What `retrieval_inputs.pick_dataset` draws; pages that call it add these to their own."""
DATA_SPLIT = Choice("retrieval.split", "", "", str)
DOCUMENT_TEXT = Choice("retrieval.document_text", "", "", str)
DOCUMENT_TITLE = Choice("retrieval.document_title", "", "", str)
DOCUMENT_ID = Choice("retrieval.document_id", "", "", str)
QUERY_TEXT = Choice("retrieval.query_text", "", "", str)
QUERY_DOCUMENT = Choice("retrieval.query_document", "", "", str)
QUERY_ID = Choice("retrieval.query_id", "", "", str)
QUERY_DEPTH = Choice("retrieval.query_depth", "", "", str)
"""Columns and splits of uploads; never in the URL, as their names come from users."""

SWEEP_SIZES: Choice[tuple[int, ...]] = Choice(
    "sweep.granularities",
    "sizes",
    (8, 16, 32, 64, 128, 256, 512),
    _sizes,
    _write_sizes,
    list,
    _sorted_tuple,
)
SWEEP_POOLINGS = _poolings_choice(
    "sweep.poolings",
    "swept",
    (
        PoolingMode.CLS,
        PoolingMode.MEAN,
        PoolingMode.LANDMARK,
        PoolingMode.EVERY_K,
        PoolingMode.MULTI_CLS,
    ),
)
SWEEP_VARIABLE = Choice("sweep.variable", "with_variable", True, _flag, _write_flag)
SWEEP_SENTENCE = Choice("sweep.sentence", "with_sentence", True, _flag, _write_flag)
SWEEP_EACH = Choice("sweep.each", "each", False, _flag, _write_flag)
"""MultiCLS and every-k at each granularity, not at one alone."""
SWEEP_REFERENCE = Choice("sweep.reference", "reference", 32, _count(1, MAX_GRANULARITY))
SWEEP_QUERY = Choice("sweep.query", "query_g", 0, _count(0, MAX_GRANULARITY))
"""0 stands for the documents' own."""
SWEEP_BASELINE = Choice("sweep.baseline", "against", "", _name)
SWEEP_METRIC = Choice(
    "sweep.metric", "measure", "ndcg@10", _one_of("ndcg@10", "recall@1", "mrr@10")
)
SWEEP_PAGE: tuple[Choice[Any], ...] = (
    *RETRIEVAL_DATA,
    SWEEP_SIZES,
    SWEEP_POOLINGS,
    SWEEP_VARIABLE,
    SWEEP_SENTENCE,
    SWEEP_EACH,
    SWEEP_REFERENCE,
    SWEEP_QUERY,
    SWEEP_BASELINE,
    SWEEP_METRIC,
)

SEARCH_POOLINGS = _poolings_choice(
    "search.poolings", "compared", (PoolingMode.CLS, PoolingMode.MEAN, PoolingMode.LANDMARK)
)
SEARCH_SEVERAL = Choice("search.several", "several", False, _flag, _write_flag)
"""Also ways to keep several vectors a document."""
SEARCH_BASELINE = Choice("search.baseline", "baseline", "landmark", _name)
SEARCH_METRIC = Choice(
    "search.metric", "by", "ndcg@10", _one_of("ndcg@10", "recall@1", "recall@10", "mrr@10")
)
SEARCH_ONLY = Choice("search.only", "only", "all", _one_of("all", "differ", "missed"))
SEARCH_PAGE: tuple[Choice[Any], ...] = (
    *RETRIEVAL_DATA,
    SEARCH_POOLINGS,
    SEARCH_SEVERAL,
    SEARCH_BASELINE,
    SEARCH_METRIC,
    SEARCH_ONLY,
)
SEARCH_QUERY = Choice("search.query", "", "", str)
SEARCH_DOCUMENT: Choice[tuple[str, str]] = Choice(
    "search.document", "", ("", ""), lambda text: ("", text), from_widget=tuple
)
"""Ids of the query, and of it with the document that is looked into; not in the URL."""
