"""What verbs share: their options, the encoder they load, progress and the JSON they print."""

import functools
import inspect
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmk_viz.config import ChunkingConfig, ChunkingMode, EncoderConfig, LayoutKind

if TYPE_CHECKING:  # It loads torch, which help has no need of.
    from lmk_viz.embedding import EmbedFunction

__all__ = [
    "BatchTokensOption",
    "CacheOption",
    "DataSetArgument",
    "DeviceOption",
    "DtypeOption",
    "EncoderOption",
    "JsonOption",
    "LayoutOption",
    "MaxLengthOption",
    "QueriesOption",
    "SplitOption",
    "TakenOption",
    "TitlesOption",
    "build_chunking",
    "cached_embed",
    "load_encoder",
    "output_file",
    "print_json",
    "progress_by_layer",
    "show_progress",
    "takes_chunking",
    "whole_numbers",
]

EncoderOption = Annotated[
    str,
    typer.Option(
        "--encoder",
        help="lmk-mini (offline, a variant a pooling), its members lmk-mini-backbone, "
        "lmk-mini-cls, ..., all-minilm-l6-v2 (offline), a hub id, or a local folder.",
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, mps, cuda, cuda:1, ...")]
DtypeOption = Annotated[str, typer.Option("--dtype", help="auto, float32, bfloat16 or float16.")]
GranularityOption = Annotated[
    int | None, typer.Option("--granularity", help="Fixed chunking: tokens a chunk (32).")
]
VariableOption = Annotated[
    str | None,
    typer.Option("--variable", help="Variable chunking: sizes to draw from, as 32,64,128,256."),
]
PerChunkOption = Annotated[
    bool, typer.Option("--per-chunk", help="Variable: draw for every chunk, not once a text.")
]
SeedOption = Annotated[int, typer.Option("--seed", help="Variable: of the draw.")]
SentenceOption = Annotated[bool, typer.Option("--sentence", help="Sentence chunking.")]
LanguageOption = Annotated[
    str | None, typer.Option("--language", help="Sentence: ISO 639 code; else by script.")
]
CapOption = Annotated[int, typer.Option("--sentence-cap", help="Sentence: longest chunk.")]
CloseTailOption = Annotated[
    bool, typer.Option("--close-tail", help="Give the last kept chunk its landmark when cut.")
]
MaxLengthOption = Annotated[
    int | None, typer.Option("--max-length", help="Longest input in tokens; else the encoder's.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
CacheOption = Annotated[
    bool,
    typer.Option("--cache/--no-cache", help="Keep vectors on disk and take those that are there."),
]
DataSetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[DIR]",
        help="A folder or ZIP in BEIR layout, or a table of documents; else the bundled set.",
    ),
]
QueriesOption = Annotated[
    str | None,
    typer.Option(
        "--queries",
        help="A table of queries with the ids of their right documents. Without it, a table "
        "of documents is asked for by a sentence taken out of each.",
    ),
]
TakenOption = Annotated[
    str, typer.Option("--taken", help="Where from: start, middle, end or spread.")
]
SplitOption = Annotated[str, typer.Option("--split", help="Of the judgements.")]
TitlesOption = Annotated[
    bool, typer.Option("--titles/--no-titles", help="Encode titles before the texts.")
]
BatchTokensOption = Annotated[
    int | None,
    typer.Option("--batch-tokens", min=1, help="Padded tokens a batch; else by device."),
]
LayoutOption = Annotated[
    LayoutKind, typer.Option("--layout", help="plain: [CLS] text [SEP], without landmarks.")
]


def build_chunking(
    granularity: GranularityOption = None,
    variable: VariableOption = None,
    per_chunk: PerChunkOption = False,
    seed: SeedOption = 0,
    sentence: SentenceOption = False,
    language: LanguageOption = None,
    sentence_cap: CapOption = 256,
    close_tail: CloseTailOption = False,
) -> ChunkingConfig:
    """Returns the chunking that the options name.

    Raises:
        ValueError: when they name more than one mode, or a value is out of range.
    """
    given = [
        name
        for name, is_given in (
            ("--granularity", granularity is not None),
            ("--variable", variable is not None),
            ("--sentence", sentence),
        )
        if is_given
    ]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} came together; give one of them.")
    shared: dict[str, Any] = {"seed": seed, "close_tail": close_tail, "sentence_cap": sentence_cap}
    if variable is not None:
        sizes = whole_numbers("--variable", variable, "separated by commas, such as 32,64,128,256")
        return ChunkingConfig(
            ChunkingMode.VARIABLE, granularities=sizes, per_chunk=per_chunk, **shared
        )
    if sentence:
        return ChunkingConfig(ChunkingMode.SENTENCE, language=language, **shared)
    if granularity is not None:
        shared["granularity"] = granularity
    return ChunkingConfig(**shared)


def output_file(output: str, endings: Sequence[str]) -> Path:
    """Returns the file that `--output` names.

    Raises:
        ValueError: when it ends otherwise, is a folder, or lies in none; said before anything is
            measured.
    """
    target = Path(output)
    try:
        can_be = target.suffix in endings and target.parent.is_dir() and not target.is_dir()
    except OSError:  # A name too long for a file system.
        can_be = False
    if not can_be:
        raise ValueError(
            f"--output is {output!r}; give a name that ends in {' or '.join(endings)} in a folder "
            "that exists."
        )
    return target


def whole_numbers(
    option: str, text: str, hint: str = "separated by commas, such as 1,2,4"
) -> tuple[int, ...]:
    """Returns the numbers of an option that takes several.

    Args:
        option: its name.
        text: what was given, separated by commas.
        hint: how to give them.

    Raises:
        ValueError: when one is no whole number.
    """
    try:
        return tuple(int(number) for number in text.split(",") if number.strip())
    except ValueError as error:
        raise ValueError(f"{option} is {text!r}; give whole numbers {hint}.") from error


def takes_chunking(command: Callable[..., None]) -> Callable[..., None]:
    """Returns the command with the options of `build_chunking` in place of `chunking`."""
    options = inspect.signature(build_chunking).parameters

    @functools.wraps(command)
    def with_options(**values: Any) -> None:
        chosen = {name: values.pop(name) for name in options}
        command(chunking=build_chunking(**chosen), **values)

    own = inspect.signature(command).parameters.values()
    parameters = [p for p in own if p.name != "chunking"]
    with_options.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(kind=p.KEYWORD_ONLY) for p in (*parameters, *options.values())]
    )
    return with_options


def load_encoder(name: str, device: str, dtype: str = "auto") -> Any:
    """Returns the encoder of a name."""
    from lmk_viz.encoder import Encoder

    return Encoder.from_pretrained(EncoderConfig(name, device=device, dtype=dtype))


def cached_embed(use_cache: bool) -> "EmbedFunction":
    """Returns what embeds a corpus: through the cache on disk, or without it.

    Args:
        use_cache: of `CacheOption`; an operator may have switched the cache off all the same.

    Raises:
        ValueError: when what an operator set for the cache cannot be.
    """
    from lmk_viz.embedding import embed_documents
    from lmk_viz.embedding_cache import EmbeddingCache

    cache = EmbeddingCache.from_environment() if use_cache else None
    return embed_documents if cache is None else cache.embed


def print_json(value: dict[str, Any]) -> None:
    """Prints one JSON object on standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def show_progress(verb: str) -> Callable[[int, int], None]:
    """Returns a callback that rewrites one line on a terminal, and is silent elsewhere."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            typer.echo(f"\r{verb} {done}/{total}{end}", err=True, nl=False)

    return show


def progress_by_layer(layers: int) -> Callable[[int], None]:
    """Returns a callback that counts layers."""
    show = show_progress("layer")
    return lambda layer: show(layer + 1, layers)
