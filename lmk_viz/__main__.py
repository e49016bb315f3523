"""The command line: the same functions as the pages, the same numbers.

With `--json` standard output holds one JSON object and nothing else; progress and notes go
to standard error. Exit status: 0 done, 2 bad input with a one-line reason.
"""

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lmk_viz.config import (
    AttentionConfig,
    ChunkingConfig,
    ChunkingMode,
    EncoderConfig,
    LayoutKind,
)
from lmk_viz.presets import DEFAULT_NAME, PRESETS

INTERRUPTED = 130
"""Exit status that typer gives for an interrupt, as shells do."""

app = typer.Typer(
    name="lmk_viz",
    help="See and measure how an encoder's pooling decides what a document's vector remembers.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

EncoderOption = Annotated[
    str, typer.Option("--encoder", help="'default' (offline), a hub id, or a local folder.")
]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, mps, cuda, cuda:1, ...")]
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
        try:
            sizes = tuple(int(size) for size in variable.split(",") if size.strip())
        except ValueError as error:
            raise ValueError(
                f"--variable is {variable!r}; give whole numbers separated by commas, "
                "such as 32,64,128,256."
            ) from error
        return ChunkingConfig(
            ChunkingMode.VARIABLE, granularities=sizes, per_chunk=per_chunk, **shared
        )
    if sentence:
        return ChunkingConfig(ChunkingMode.SENTENCE, language=language, **shared)
    if granularity is not None:
        shared["granularity"] = granularity
    return ChunkingConfig(**shared)


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


@app.command()
@takes_chunking
def landmarks(
    file: Annotated[str, typer.Argument(help="A text file.")],
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    layout: LayoutOption = LayoutKind.LANDMARK,
    max_length: MaxLengthOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Show where landmarks fall in a text: input ids, landmark positions, chunks."""
    from lmk_viz.documents import read_document
    from lmk_viz.landmarks import measure_layout

    document = read_document(file)
    model = _load(encoder, device)
    made = model.layout(document.text, layout, chunking, max_length)
    stats = measure_layout(made, chunking.language)
    if as_json:
        _print_json(
            {
                "document": document.id,
                "encoder": model.name,
                "chunking": chunking.describe(),
                **made.to_dict(),
                "stats": stats.to_dict(),
                "spelled_special_tokens": model.spelled_special_tokens(document.text),
            }
        )
        return
    lines = [f"{document.title}: {chunking.describe()}, encoder {model.name}"]
    lines += [
        f"{chunk.index:>5}  tokens {chunk.token_start}-{chunk.token_end}  "
        + (
            "no landmark"
            if chunk.landmark_position is None
            else f"landmark at {chunk.landmark_position}"
        )
        + f"  {document.text[chunk.char_start : chunk.char_end][:60]!r}"
        for chunk in made.chunks
    ]
    lines.append(
        f"{stats.tokens:,} tokens, {stats.tokens_cut:,} cut by the limit of {made.max_length:,}; "
        f"{stats.landmarks} landmarks ({stats.overhead:.1%} overhead), tail {stats.tail_tokens}; "
        f"of {stats.boundaries} boundaries {stats.boundaries_in_word} inside a word, "
        f"{stats.boundaries_in_sentence} inside a sentence."
    )
    typer.echo("\n".join(lines))


@app.command()
@takes_chunking
def attention(
    file: Annotated[str, typer.Argument(help="A text file.")],
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    layout: LayoutOption = LayoutKind.LANDMARK,
    bins: Annotated[int, typer.Option("--bins", help="Position bins.")] = AttentionConfig().bins,
    max_length: MaxLengthOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure where the CLS row and the landmark rows of a text look, by layer and head."""
    from lmk_viz.attention_profile import SCALARS
    from lmk_viz.documents import read_document

    config = AttentionConfig(bins=bins)
    document = read_document(file)
    model = _load(encoder, device)
    made = model.layout(document.text, layout, chunking, max_length)
    model.check_memory(len(made), 1 + made.n_landmarks)
    profile = model.attention_profile(made, config, _progress_by_layer(model.n_layers))
    if as_json:
        _print_json(
            {
                "document": document.id,
                "encoder": model.name,
                "trained_for": model.trained_for.value if model.trained_for else None,
                "chunking": chunking.describe(),
                "layout": made.kind.value,
                "input_length": len(made),
                "tokens_cut": made.n_cut,
                "landmarks": made.n_landmarks,
                **profile.to_dict(),
            }
        )
        return
    lines = [
        f"{document.title}: {profile.n_content:,} text tokens, {made.n_cut:,} cut, "
        f"{made.n_landmarks} landmarks, encoder {model.name}",
        "mean over heads; first_tenth of a uniform row is 0.100",
        f"{'layer':<12}{'row':<10}"
        + "".join(f"{name:>20}" for name in SCALARS)
        + f"{'on specials':>14}",
    ]
    for layer, kind in enumerate(profile.layer_kinds):
        for mode, row in profile.rows.items():
            values = row.scalars[layer].mean(axis=0)
            share = row.special[layer].sum(axis=-1).mean()
            lines.append(
                f"{f'L{layer} {kind.value}':<12}{mode.value:<10}"
                + "".join(f"{value:>20.3f}" for value in values)
                + f"{share:>14.3f}"
            )
    typer.echo("\n".join(lines))


@app.command()
@takes_chunking
def embed(
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="JSONL, CSV, TSV, Parquet, a folder or a text.")
    ],
    output: Annotated[str, typer.Option("--output", help="A .parquet file to write.")],
    chunking: ChunkingConfig,
    pooling: Annotated[
        str, typer.Option("--pooling", help="cls, mean, landmark, every_k, multi_cls; by commas.")
    ] = "cls,mean,landmark",
    encoder: EncoderOption = DEFAULT_NAME,
    max_length: MaxLengthOption = None,
    text_column: Annotated[str, typer.Option("--text-column")] = "text",
    label_column: Annotated[str, typer.Option("--label-column")] = "label",
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Embed a corpus: one row a document in order, one column of unit vectors a pooling."""
    from lmk_viz.corpus import Columns, load_corpus
    from lmk_viz.embedding import embed_documents
    from lmk_viz.pooling import parse_poolings

    target = Path(output)
    if target.suffix != ".parquet":
        raise ValueError(f"--output is {output!r}; give a name that ends in .parquet.")
    try:
        has_folder = target.parent.is_dir()
    except OSError:  # A name too long for a file system.
        has_folder = False
    if not has_folder:
        raise ValueError(f"--output is {output!r}; its folder does not exist.")
    poolings = parse_poolings(pooling)
    corpus = load_corpus(source, Columns(text=text_column, label=label_column))
    model = _load(encoder, device)
    table = embed_documents(
        model, corpus.documents, poolings, chunking, max_length, progress=_progress("embedded")
    )
    excluded = (*corpus.excluded, *table.excluded)
    for left_out in excluded:
        typer.echo(f"left out {left_out.id}: {left_out.reason}", err=True)
    # A reader never sees half a file.
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        table.to_frame().to_parquet(partial, index=False)
        partial.replace(target)
    except OSError as error:
        raise ValueError(f"{output!r} cannot be written: {error.strerror}.") from error
    finally:
        # What kept it from being written can keep it from being looked for, too.
        with contextlib.suppress(OSError):
            partial.unlink()
    summary = {
        "output": str(target),
        "encoder": model.name,
        "trained_for": model.trained_for.value if model.trained_for else None,
        "chunking": chunking.describe(),
        "poolings": [p.mode.value for p in table.poolings],
        "documents": len(table),
        "excluded": [{"id": e.id, "reason": e.reason} for e in excluded],
        "documents_cut": int(table.was_cut.sum()),
        "embedding_dim": model.embedding_dim,
        "seconds": table.seconds,
    }
    if as_json:
        _print_json(summary)
        return
    typer.echo(
        f"{summary['documents']} documents under {', '.join(p.label for p in table.poolings)} in "
        f"{table.seconds:.1f} s; {summary['documents_cut']} cut by the length limit, "
        f"{len(excluded)} left out; written to {target}"
    )


@app.command()
def encoders(
    name: Annotated[
        str | None, typer.Argument(help="Load this encoder and say what it is.")
    ] = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """List the encoders on offer, or describe one."""
    if name is not None:
        model = _load(name, device)
        facts = {**model.facts(), "reports_attention": model.reports_attention}
        if as_json:
            _print_json(facts)
        else:
            typer.echo("\n".join(f"{key}: {value}" for key, value in facts.items()))
        return
    rows = [
        {
            "name": preset.name,
            "title": preset.title,
            "offline": preset.is_offline,
            "trained_for": preset.trained_for.value if preset.trained_for else None,
            "positions": preset.positions,
            "note": preset.note,
        }
        for preset in PRESETS
    ]
    if as_json:
        _print_json({"encoders": rows})
        return
    for row in rows:
        typer.echo(
            f"{row['name']:<46}{row['positions']:<18}{row['trained_for'] or '-':<8}{row['note']}"
        )


bench_app = typer.Typer(help="Measure speed and memory, side by side in one run.")
app.add_typer(bench_app, name="bench")


@bench_app.command("attention")
def bench_attention_command(
    shape: Annotated[
        str, typer.Option("--shape", help="modernbert-base, or tiny to try it out.")
    ] = "modernbert-base",
    tokens: Annotated[int, typer.Option("--tokens", help="For capture and eager.")] = 2048,
    long_tokens: Annotated[
        int, typer.Option("--long-tokens", help="For our forward against stock SDPA.")
    ] = 8192,
    longest_tokens: Annotated[
        int | None, typer.Option("--longest-tokens", help="One more capture at this length.")
    ] = None,
    granularity: Annotated[int, typer.Option("--granularity")] = 32,
    repeats: Annotated[int, typer.Option("--repeats", help="Timed runs at --tokens.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Row capture against plain, eager and stock forwards, on random weights."""
    from lmk_viz.bench import AttentionBench, bench_attention

    settings = AttentionBench(shape, tokens, long_tokens, longest_tokens, granularity, repeats)
    result = bench_attention(settings, lambda what: typer.echo(what, err=True))
    if as_json:
        _print_json(result)
        return
    for name in ("memory_ratio", "time_ratio", "forward_speedup", "peak_rss_gib"):
        value = result[name]
        typer.echo(f"{name:<24}" + ("-" if value is None else f"{value:.3f}"))
    for name, value in (*result["absolute"].items(), *result.get("longest", {}).items()):
        typer.echo(
            f"  {name:<22}{value:,.3f}" if isinstance(value, float) else f"  {name:<22}{value:,}"
        )


@bench_app.command("forecast")
def bench_forecast_command(as_json: JsonOption = False) -> None:
    """What a long run is forecast to take against what it takes, three shapes by three lengths."""
    from lmk_viz.bench import bench_forecast

    rows = bench_forecast(report=lambda what: typer.echo(what, err=True))
    if as_json:
        _print_json({"rows": rows})
        return
    for row in rows:
        typer.echo(
            f"{row['shape']:<18}{row['tokens']:>7,}  {row['forecast_seconds']:8.2f} s forecast, "
            f"{row['seconds']:8.2f} s ({row['seconds_ratio']:.2f})  {row['forecast_mib']:8.0f} MiB "
            f"forecast, {row['mib']:8.0f} MiB ({row['memory_ratio'] or 0:.2f})"
        )


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        status = app(
            args=arguments or ["--help"], standalone_mode=False, prog_name="python -m lmk_viz"
        )
    except typer.TyperException as error:
        _fail(error.format_message())
        return 2
    except ValueError as error:
        # Settings and inputs are checked at the library's edge, which raises ValueError.
        _fail(str(error))
        return 2
    except SystemExit:
        # What typer makes of a broken pipe: the reader of the output went away, and nothing is
        # left to say to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if status == INTERRUPTED:
        _fail("stopped")
    return status if isinstance(status, int) else 0


def _fail(message: str) -> None:
    typer.echo(f"lmk_viz: error: {' '.join(message.split())}", err=True)


def _load(name: str, device: str) -> Any:
    from lmk_viz.encoder import Encoder

    return Encoder.from_pretrained(EncoderConfig(name, device=device))


def _print_json(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _progress(verb: str) -> Callable[[int, int], None]:
    """Returns a callback that rewrites one line on a terminal, and is silent elsewhere."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            typer.echo(f"\r{verb} {done}/{total}{end}", err=True, nl=False)

    return show


def _progress_by_layer(layers: int) -> Callable[[int], None]:
    show = _progress("layer")
    return lambda layer: show(layer + 1, layers)


if __name__ == "__main__":
    sys.exit(main())
