"""How retrieval holds up in documents many times longer than what an encoder was trained on.

A sentence of a passage is the query, the rest of the passage stands at a known depth among
unrelated passages, and that document has to be found among others of the same length. Query,
passage and depth of a document are the same at every length, so lengths are paired.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lmk_viz.config import ChunkingConfig, LayoutKind, PoolingConfig, PoolingMode, digest
from lmk_viz.embedding import embed_documents
from lmk_viz.embedding_encoder import EmbeddingEncoder, checked_modes, pooling_passes
from lmk_viz.landmarks import Tokens
from lmk_viz.pooling import POOLINGS, resolve
from lmk_viz.retrieval.extrapolation import (
    DEFAULT_LENGTH,
    METRICS,
    Extrapolation,
    ExtrapolationConfig,
    ExtrapolationRow,
)
from lmk_viz.retrieval.joined import DocumentBuilder, JoinedDocuments, split_passages
from lmk_viz.retrieval.metrics import score_rankings
from lmk_viz.retrieval.passages import Passage
from lmk_viz.retrieval.search import is_trained, rank_documents

__all__ = [
    "Extrapolation",
    "ExtrapolationConfig",
    "ExtrapolationRow",
    "extrapolate",
    "training_length",
]

SPECIALS = 2
"""CLS and SEP, which the plain layout puts round a text."""
_PROBE = 8
_PROBE_TOLERANCE = 0.01
"""Components of unit vectors that differ by more than this come from other weights."""


def training_length(encoder: Any) -> int:
    """Returns the length that an encoder says it was trained on, else 256."""
    return int(getattr(encoder, "training_length", None) or DEFAULT_LENGTH)


def extrapolate(
    encoder: EmbeddingEncoder,
    passages: Sequence[Passage],
    poolings: Sequence[PoolingConfig],
    config: ExtrapolationConfig | None = None,
    chunking: ChunkingConfig | None = None,
    baseline: PoolingMode = PoolingMode.LANDMARK,
    batch_tokens: int | None = None,
    kept: Mapping[str, Any] | None = None,
    on_rows: Callable[[Extrapolation], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Extrapolation:
    """Returns nDCG@10 and recall@1 against length and depth for each pooling.

    Args:
        encoder: the encoder, or a family behind the same methods.
        passages: that the encoder never saw; golds and fillers come from them.
        poolings: at least one, each mode once.
        config: lengths and number of documents; its `length` is the training length.
        chunking: where landmarks go, on both sides.
        baseline: the pooling that differences are taken to.
        batch_tokens: padded tokens a batch; None chooses by device.
        kept: what `Extrapolation.to_dict` gave before; its rows are not measured again where
            the encoder still gives the same vectors.
        on_rows: called with everything known after each new pass.
        progress: called with (what is measured, texts done, texts in all). May raise.

    Returns:
        Rows by multiple, then by pooling as given, and kept rows of other poolings and
        multiples behind them.

    Raises:
        ValueError: when a document does not fit the encoder whole, fillers do not last, or the
            kept rows are of other settings.
    """
    config, chunking = config or ExtrapolationConfig(), chunking or ChunkingConfig()
    resolved = [resolve(pooling, chunking) for pooling in poolings]
    modes = checked_modes(encoder, resolved)
    _check_longest(encoder, config)
    golds, fillers = split_passages(passages, config.documents, config.seed)
    builder = DocumentBuilder(golds, fillers, partial(_tokenize, encoder), config.seed)
    settings = _settings(encoder, passages, config, chunking)
    passes = pooling_passes(encoder, resolved)
    probes = _probe(encoder, builder, passes, chunking)
    rows = _kept_rows(kept, settings, probes)

    def result() -> Extrapolation:
        wanted = [(multiple, mode) for multiple in config.multiples for mode in modes]
        order = {key: place for place, key in enumerate(wanted)}
        keys = sorted(rows, key=lambda key: (order.get(key, len(order)), key))
        return Extrapolation(settings, baseline, tuple(rows[key] for key in keys))

    for multiple in config.multiples:
        missing = [
            tuple(pooling for pooling in group if (multiple, pooling.mode) not in rows)
            for group in passes
        ]
        if not any(missing):
            continue
        joined = builder.build(multiple * config.length - SPECIALS)
        for group in filter(None, missing):
            names = ", ".join(pooling.mode.value for pooling in group)
            report = (
                partial(progress, f"{multiple} x {config.length}, {names}") if progress else None
            )
            for row in _measure(
                encoder, joined, group, multiple, probes, chunking, batch_tokens, report
            ):
                rows[multiple, row.pooling] = row
            if on_rows is not None:
                on_rows(result())
    return result()


def _probe(
    encoder: EmbeddingEncoder,
    builder: DocumentBuilder,
    passes: Sequence[Sequence[PoolingConfig]],
    chunking: ChunkingConfig,
) -> dict[PoolingMode, tuple[float, ...]]:
    """Returns the first components of the first query's vector under each pooling."""
    found = {}
    for group in passes:
        table = embed_documents(encoder, builder.queries[:1], group, chunking)
        for pooling in group:
            vector = table.vectors[pooling.mode][:1, :_PROBE].ravel()
            found[pooling.mode] = tuple(float(value) for value in vector.tolist())
    return found


def _measure(
    encoder: EmbeddingEncoder,
    joined: JoinedDocuments,
    group: Sequence[PoolingConfig],
    multiple: int,
    probes: Mapping[PoolingMode, tuple[float, ...]],
    chunking: ChunkingConfig,
    batch_tokens: int | None,
    report: Callable[[int, int], None] | None,
) -> list[ExtrapolationRow]:
    limit = _limit(encoder, joined, {POOLINGS[p.mode].layout for p in group}, chunking)
    corpus = embed_documents(
        encoder, joined.documents, group, chunking, limit, True, batch_tokens, report
    )
    asked = embed_documents(encoder, joined.queries, group, chunking, limit, True, batch_tokens)
    for table in (corpus, asked):
        if table.excluded:
            first = table.excluded[0]
            raise ValueError(f"document {first.id} cannot be measured: {first.reason}.")
        if table.was_cut.any():
            raise ValueError(_cut_message(encoder, int(joined.tokens.max())))
    ids = [document.id for document in corpus.documents]
    qrels = {name: {name: 1} for name in ids}
    found = []
    for pooling in group:
        mode = pooling.mode
        ranked = rank_documents(asked.vectors[mode], corpus.vectors[mode], ids)
        found.append(
            ExtrapolationRow(
                pooling=mode,
                multiple=multiple,
                trained=is_trained(encoder, mode),
                per_query=score_rankings(qrels, dict(zip(ids, ranked, strict=True)), METRICS),
                places=joined.places,
                tokens=float(joined.tokens.mean()),
                seconds=corpus.seconds + asked.seconds,
                probe=probes[mode],
            )
        )
    return found


def _tokenize(encoder: EmbeddingEncoder, text: str) -> Tokens:
    return encoder.layout(text, LayoutKind.PLAIN, ChunkingConfig(), None).tokens


def _hard_limit(encoder: Any) -> int | None:
    """Returns the longest input that an encoder can take at all, None where it has no such."""
    return int(encoder.max_length) if getattr(encoder, "has_hard_limit", False) else None


def _check_longest(encoder: EmbeddingEncoder, config: ExtrapolationConfig) -> None:
    hard = _hard_limit(encoder)
    longest = max(config.multiples) * config.length
    if hard is not None and longest > hard:
        raise ValueError(_cut_message(encoder, longest))


def _limit(
    encoder: EmbeddingEncoder,
    joined: JoinedDocuments,
    kinds: set[LayoutKind],
    chunking: ChunkingConfig,
) -> int:
    """Returns a length limit under which no layout is cut.

    Raises:
        ValueError: when the encoder has no room for the landmarks of the longest document.
    """
    longest = joined.documents[int(np.argmax(joined.tokens))]
    # No layout puts in more than one token a text token, and a CLS and a SEP.
    needed = 2 * int(joined.tokens.max()) + SPECIALS + 2
    hard = _hard_limit(encoder)
    limit = needed if hard is None else min(needed, hard)
    if any(encoder.layout(longest.text, kind, chunking, limit).n_cut for kind in kinds):
        raise ValueError(_cut_message(encoder, int(joined.tokens.max())))
    return limit


def _cut_message(encoder: EmbeddingEncoder, tokens: int) -> str:
    return (
        f"documents of {tokens:,} tokens, with what the layout adds, do not fit "
        f"{encoder.name!r} (at most {_hard_limit(encoder) or 'unknown'}); "
        "give lower --multiples or a shorter --length."
    )


def _settings(
    encoder: EmbeddingEncoder,
    passages: Sequence[Passage],
    config: ExtrapolationConfig,
    chunking: ChunkingConfig,
) -> dict[str, Any]:
    content = hashlib.sha256()
    for passage in sorted(passages, key=lambda passage: passage.id):
        content.update(f"{passage.id}\x00{passage.doc}\x00{passage.text}\x01".encode())
    return {
        "encoder": encoder.name,
        "dtype": str(getattr(encoder, "dtype", "float32")).removeprefix("torch."),
        "length": config.length,
        "documents": config.documents,
        "seed": config.seed,
        "chunking": chunking.describe(),
        "chunking_digest": digest(chunking),
        "passages": len(passages),
        "passages_digest": content.hexdigest()[:16],
    }


def _kept_rows(
    kept: Mapping[str, Any] | None,
    settings: Mapping[str, Any],
    probes: Mapping[PoolingMode, tuple[float, ...]],
) -> dict[tuple[int, PoolingMode], ExtrapolationRow]:
    if kept is None:
        return {}
    before = kept.get("settings")
    if before != settings:
        changed = sorted(
            name
            for name in {*settings, *(before or {})}
            if (before or {}).get(name) != settings.get(name)
        )
        raise ValueError(
            f"the kept rows were measured with other settings ({', '.join(changed)}); "
            "give another --output, or the same settings."
        )
    found = {}
    for row in map(ExtrapolationRow.from_dict, kept.get("rows", ())):
        probe = probes.get(row.pooling)
        # Rows of a pooling that is not asked for now stay, unseen.
        if probe is None or np.allclose(probe, row.probe, rtol=0, atol=_PROBE_TOLERANCE):
            found[row.multiple, row.pooling] = row
    return found
