"""A cache of document vectors on disk, keyed by content and settings.

Each vector is kept under what decides it and nothing else: the weights, tokenizer and precision
of the encoder that its pooling reads (of a family: of that variant), the text, the pooling with
the settings that it reads, the chunking where its layout has chunks, the length limit and
whether it is normalised. A sweep over granularities so embeds the texts for `cls` and `mean`
once. Texts are not kept, only their digests.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbeddingTable, embed_documents
from lmk_viz.embedding_encoder import EmbeddingEncoder, member_for
from lmk_viz.embedding_rows import PoolingRows
from lmk_viz.pooling import POOLINGS
from lmk_viz.vector_files import VectorFolder

__all__ = ["EmbeddingCache", "cache_folder", "pooling_setting"]

FORMAT = 1
"""Raise it when the same settings come to mean other vectors, or files other columns."""
MAKERS = ("torch", "transformers", "tokenizers", "sentencex", "regex")
"""What tokenises, cuts and computes; a new version can mend what an old one made."""
DEFAULT_GIGABYTES = 2.0
FLUSH_SECONDS = 5.0
"""Rows are written about this often, and at the end whatever the end: only a process that is
killed loses some."""
FLUSH_BYTES = 32 * 2**20
RARER_SECONDS = 60.0
"""After each such time a call writes as much more rarely as it did at first, so that a long one
does not leave thousands of files."""


class EmbeddingCache:
    """Vectors on disk in front of `embed_documents`; safe for threads and processes."""

    def __init__(self, folder: Path, max_bytes: int, flush_seconds: float = FLUSH_SECONDS) -> None:
        """Takes where to keep vectors and how many bytes of them.

        Args:
            folder: made when it is needed.
            max_bytes: what was not used for longest is dropped first; 0 keeps nothing.
            flush_seconds: rows are written to disk this often.
        """
        self.files = VectorFolder(folder, max_bytes)
        self._flush_seconds = flush_seconds

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ
    ) -> "EmbeddingCache | None":
        """Returns the cache of this installation, or None where it is switched off.

        `LMK_VIZ_CACHE_DIR` says where, else the user's cache folder; `LMK_VIZ_CACHE_GB` how
        large, 2 where it is not set, 0 for none.

        Raises:
            ValueError: when the size is no number.
        """
        raw = environment.get("LMK_VIZ_CACHE_GB", str(DEFAULT_GIGABYTES))
        try:
            gigabytes = float(raw)
        except ValueError:
            gigabytes = -1.0
        if not 0 <= gigabytes < 1e6:
            raise ValueError(
                f"LMK_VIZ_CACHE_GB is {raw!r}; allowed: a number such as 2, or 0 for no cache."
            )
        folder = cache_folder(environment)
        if not gigabytes or folder is None:
            return None
        return cls(folder, int(gigabytes * 2**30))

    def embed(
        self,
        encoder: EmbeddingEncoder,
        documents: Sequence[Document],
        poolings: Sequence[PoolingConfig],
        chunking: ChunkingConfig | None = None,
        max_length: int | None = None,
        normalize: bool = True,
        batch_tokens: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> EmbeddingTable:
        """Returns what `embed_documents` returns, embedding only what is not on disk.

        Where nothing is on disk the vectors are the same to the last bit; where a part is, the
        rest is batched without it, and its last digits may differ (by under 1e-5 in float32).
        Rows are written as they are made, so that a call that was stopped goes on where it was.
        An encoder that cannot tell what it is (no `fingerprint`) is not cached.

        Arguments, results and errors are those of `embed_documents`.
        """
        identities = _Identities(encoder)
        resolved = chunking or ChunkingConfig()
        store = None
        if identities.are_known:
            limit = _length_limit(encoder, max_length)

            def setting(pooling: PoolingConfig) -> str:
                identity = identities.of(pooling.mode)
                return setting_digest(identity, pooling, resolved, limit, normalize)

            store = _Call(self.files, setting, encoder.embedding_dim, self._flush_seconds)
        try:
            return embed_documents(
                encoder,
                documents,
                poolings,
                chunking,
                max_length,
                normalize,
                batch_tokens,
                progress,
                store,
            )
        finally:
            if store is not None:
                store.flush()

    def size(self) -> int:
        """Returns the bytes on disk."""
        return self.files.size()

    def clear(self) -> int:
        """Drops everything, and returns how many bytes that were."""
        return self.files.clear()


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Returns where vectors are kept: the operator's folder, else the user's cache folder.

    None where there is neither, as for a user without a home.
    """
    named = environment.get("LMK_VIZ_CACHE_DIR")
    try:
        if named:
            return Path(named).expanduser() / "embeddings"
        if sys.platform == "win32":
            base = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return base / "lmk_viz" / "embeddings"


def pooling_setting(pooling: PoolingConfig, chunking: ChunkingConfig) -> dict[str, Any]:
    """Returns the settings that a pooling's vector depends on, and no others.

    Args:
        pooling: resolved.
        chunking: of the call.

    Example:
        >>> pooling_setting(PoolingConfig(PoolingMode.CLS), ChunkingConfig(granularity=8))
        {'mode': 'cls'}
        >>> pooling_setting(PoolingConfig(PoolingMode.LANDMARK), ChunkingConfig(granularity=8))
        {'mode': 'landmark', 'chunking': 'fixed', 'close_tail': False, 'granularity': 8}
    """
    found: dict[str, Any] = {"mode": pooling.mode.value}
    match pooling.mode:
        case PoolingMode.CLS | PoolingMode.LANDMARK | PoolingMode.MULTI_CLS:
            pass
        case PoolingMode.MEAN | PoolingMode.LATENT_ATTENTION:
            found["include_special"] = pooling.include_special
        case PoolingMode.EVERY_K:
            found["k"] = pooling.k
    if POOLINGS[pooling.mode].layout is LayoutKind.PLAIN:
        return found
    found |= {"chunking": chunking.mode.value, "close_tail": chunking.close_tail}
    read = {
        ChunkingMode.FIXED: ("granularity",),
        ChunkingMode.VARIABLE: ("granularities", "per_chunk", "seed"),
        ChunkingMode.SENTENCE: ("language", "sentence_cap"),
    }
    stated = asdict(chunking)
    return found | {name: stated[name] for name in read[chunking.mode]}


def setting_digest(
    identity: str,
    pooling: PoolingConfig,
    chunking: ChunkingConfig,
    limit: int | None,
    normalize: bool,
) -> str:
    """Returns a digest of all that decides a vector but the text.

    Args:
        identity: of the encoder that the pooling reads.
        pooling: resolved.
        chunking: of the call.
        limit: longest input.
        normalize: whether vectors have length 1.
    """
    parts = (
        FORMAT,
        *(version(name) for name in MAKERS),
        identity,
        sorted(pooling_setting(pooling, chunking).items()),
        limit,
        normalize,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class _Identities:
    """Who makes the vectors of each pooling; of a family its variants, loaded when asked."""

    def __init__(self, encoder: Any) -> None:
        self._encoder = encoder
        self.are_known = hasattr(encoder, "fingerprint")

    def of(self, mode: PoolingMode) -> str:
        """Returns the fingerprint of the encoder that a pooling reads."""
        return str(member_for(self._encoder, mode).fingerprint)


class _Call:
    """The rows of one call: asked first, taken in as they are made, written now and then."""

    def __init__(
        self,
        files: VectorFolder,
        setting: Callable[[PoolingConfig], str],
        dim: int,
        flush_seconds: float,
    ) -> None:
        self._files = files
        self._setting = setting
        self._dim = dim
        self._flush_seconds = flush_seconds
        self._waiting: dict[str, list[tuple[list[str], PoolingRows]]] = {}
        self._bytes = 0
        self._started = self._flushed = time.monotonic()

    def find(
        self, pooling: PoolingConfig, texts: Sequence[str]
    ) -> tuple[NDArray[np.int64], PoolingRows]:
        return self._files.find(self._setting(pooling), _keys(texts), self._dim)

    def keep(self, pooling: PoolingConfig, texts: Sequence[str], rows: PoolingRows) -> None:
        # A vector that is not finite may come of a fault that passes; it is not believed.
        good = np.flatnonzero(np.isfinite(rows.vectors).all(axis=1))
        keys = _keys([texts[row] for row in good.tolist()])
        self._waiting.setdefault(self._setting(pooling), []).append((keys, rows.take(good)))
        self._bytes += rows.vectors.nbytes
        now = time.monotonic()
        patience = self._flush_seconds * (1 + (now - self._started) / RARER_SECONDS)
        if self._bytes >= FLUSH_BYTES or now - self._flushed >= patience:
            self.flush()

    def flush(self) -> None:
        """Writes what waits, a file a setting."""
        waiting, self._waiting = self._waiting, {}
        for setting, parts in waiting.items():
            keys = [key for part, _ in parts for key in part]
            self._files.keep(setting, keys, PoolingRows.join([rows for _, rows in parts]))
        self._bytes = 0
        self._flushed = time.monotonic()


def _keys(texts: Sequence[str]) -> list[str]:
    return [hashlib.sha256(text.encode()).hexdigest() for text in texts]


def _length_limit(encoder: Any, max_length: int | None) -> int | None:
    """Returns the limit that the encoder will use, so that its own and the same one given agree.

    Raises:
        ValueError: when it cannot be used.
    """
    check = getattr(encoder, "check_length", None)
    if check is not None:
        return int(check(max_length))
    return max_length if max_length is not None else getattr(encoder, "max_length", None)
