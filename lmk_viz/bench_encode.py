"""What embedding a corpus costs: ours against sentence-transformers, and five poolings by one.

Side by side in one run, on the same texts and the same weights, the sides alternating part by
part, so that other work on the machine falls on all of them.
"""

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lmk_viz.config import ChunkingConfig, EncoderConfig, PoolingConfig, PoolingMode
from lmk_viz.documents import Document, sample_documents
from lmk_viz.embedding import embed_documents
from lmk_viz.embedding_encoder import pooling_passes
from lmk_viz.encoder import Encoder

__all__ = ["EncodeBench", "bench_encode", "mixed_corpus"]

FIVE = (
    PoolingMode.CLS,
    PoolingMode.MEAN,
    PoolingMode.EVERY_K,
    PoolingMode.LANDMARK,
    PoolingMode.MULTI_CLS,
)
"""Those that any encoder has: three read one layout, the other two a layout each."""
BATCH_SIZE = 32
"""Of sentence-transformers, its own default."""


@dataclass(frozen=True, slots=True)
class EncodeBench:
    """What `bench encode` measures."""

    encoder: str = "lmk-mini-backbone"
    documents: int = 500
    shortest: int = 32
    """Tokens, specials included; lengths are log-uniform from here to `longest`."""
    longest: int = 2048
    granularity: int = 32
    part_batches: int = 3
    """Batches of sentence-transformers in a part; sides change with each part."""
    seed: int = 0

    def __post_init__(self) -> None:
        for name, low in (("documents", 1), ("shortest", 4), ("granularity", 1)):
            if getattr(self, name) < low:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: {low} and more.")
        if self.longest < self.shortest:
            raise ValueError(
                f"longest is {self.longest}; allowed: shortest ({self.shortest}) and more."
            )
        if self.part_batches < 1:
            raise ValueError(f"part_batches is {self.part_batches}; allowed: 1 and more.")


def bench_encode(
    settings: EncodeBench, report: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Returns seconds of mean pooling on both sides, of five poolings, and how vectors differ.

    `speedup` is seconds of sentence-transformers by ours for mean pooling; `five_ratio` is our
    seconds for five poolings by those for mean alone. Parts are cut from the corpus in the order
    of length, in whole batches, so that sentence-transformers, which sorts by length, makes the
    very batches that it would make of the whole corpus.

    Args:
        settings: which corpus and encoder.
        report: told what is being measured.

    Raises:
        ValueError: when sentence-transformers is missing, the encoder is a family, or the
            encoder cannot take texts of that length.
    """
    encoder = Encoder.from_pretrained(EncoderConfig(settings.encoder, device="cpu"))
    if getattr(encoder, "variants", None):
        raise ValueError(
            f"encoder {settings.encoder!r} is a family, of which each pooling has weights of its "
            f"own, so that five poolings cost five passes; give {encoder.name}-backbone."
        )
    limit = encoder.check_length(settings.longest)
    stock = _sentence_transformer(encoder, limit)
    corpus = sorted(mixed_corpus(encoder, settings), key=lambda document: -len(document.text))
    size = BATCH_SIZE * settings.part_batches
    parts = [corpus[start : start + size] for start in range(0, len(corpus), size)]
    mean = (PoolingConfig(PoolingMode.MEAN),)
    five = tuple(PoolingConfig(mode) for mode in FIVE)
    chunking = ChunkingConfig(granularity=settings.granularity)

    def ours(part: Sequence[Document], poolings: Sequence[PoolingConfig]) -> NDArray[np.float32]:
        table = embed_documents(encoder, part, poolings, chunking, limit)
        return table.vectors[PoolingMode.MEAN]

    sides: dict[str, Callable[[Sequence[Document]], NDArray[np.float32]]] = {
        "ours": lambda part: ours(part, mean),
        "sentence_transformers": lambda part: _stock_vectors(stock, part),
        "five_poolings": lambda part: ours(part, five),
    }
    seconds = dict.fromkeys(sides, 0.0)
    difference = 0.0
    for run in sides.values():
        run(corpus[-1:])  # What a first call sets up is no part of its time.
    for number, part in enumerate(parts):
        report(f"part {number + 1} of {len(parts)}: {len(part)} documents")
        vectors = {}
        # The order turns, so that none always comes first.
        names = [*list(sides)[number % len(sides) :], *list(sides)[: number % len(sides)]]
        for name in names:
            started = time.perf_counter()
            vectors[name] = sides[name](part)
            seconds[name] += time.perf_counter() - started
        for name in ("sentence_transformers", "five_poolings"):
            difference = max(difference, float(np.abs(vectors["ours"] - vectors[name]).max()))
    lengths = [min(limit, 2 + len(encoder.tokenize(document.text))) for document in corpus]
    return {
        "settings": asdict(settings),
        "speedup": seconds["sentence_transformers"] / seconds["ours"],
        "five_ratio": seconds["five_poolings"] / seconds["ours"],
        "largest_difference": difference,
        "passes_of_five": len(pooling_passes(encoder, five)),
        "documents_per_second": {name: len(corpus) / value for name, value in seconds.items()},
        "seconds": seconds,
        "tokens": {
            "total": sum(lengths),
            "shortest": min(lengths),
            "median": float(np.median(lengths)),
            "longest": max(lengths),
        },
    }


def mixed_corpus(encoder: Any, settings: EncodeBench) -> list[Document]:
    """Returns documents of mixed lengths made of the bundled long documents, in random order.

    Each is a run of text from a random word on, over the end of a document into the next where
    it has to be. Lengths are in tokens of the encoder, specials included, and may miss what was
    drawn by a few, since a text cut at a word is tokenised anew.

    Args:
        encoder: its tokenizer says where tokens end.
        settings: how many of what lengths.
    """
    text = "\n\n".join(document.text for document in sample_documents())
    ends = encoder.tokenize(text).ends
    room = len(ends)
    rng = np.random.default_rng(settings.seed)
    span = np.log(settings.shortest), np.log(settings.longest)
    lengths = np.exp(rng.uniform(*span, size=settings.documents)).round().astype(int)
    found = []
    for number, length in enumerate(lengths.tolist()):
        wanted = max(1, length - 2)
        if wanted >= room:
            raise ValueError(f"longest is {settings.longest}; allowed: up to {room} tokens.")
        first = int(rng.integers(room - wanted))
        start, end = (int(ends[first - 1]) if first else 0), int(ends[first + wanted - 1])
        found.append(Document(str(number), f"{length} tokens", text[start:end].strip()))
    return found


def _sentence_transformer(encoder: Encoder, limit: int) -> Any:
    """Returns the same weights in sentence-transformers, with mean pooling.

    Raises:
        ValueError: when it is not installed, or does not load the encoder's folder.
    """
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    except ImportError as error:
        raise ValueError(
            "this compares with sentence-transformers, which is not installed; run "
            "`pip install sentence-transformers==6.2.0`."
        ) from error
    with warnings.catch_warnings():
        # Of its own and transformers' coming changes.
        warnings.simplefilter("ignore")
        module = Transformer(
            encoder.source,
            max_seq_length=limit,
            model_kwargs={"dtype": encoder.dtype, "use_safetensors": True},
        )
        stock = SentenceTransformer(
            modules=[module, Pooling(encoder.embedding_dim, "mean")], device=str(encoder.device)
        )
    # Whatever a folder holds beside its weights, these are the ones that are compared.
    module.model.load_state_dict(encoder.model.state_dict(), strict=False)
    return stock


def _stock_vectors(stock: Any, part: Sequence[Document]) -> NDArray[np.float32]:
    found: NDArray[np.float32] = stock.encode(
        [document.text for document in part],
        batch_size=BATCH_SIZE,
        normalize_embeddings=True,
        show_progress_bar=False,
    )
    return found
