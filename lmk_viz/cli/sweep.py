"""The verb that compares granularities: sweep."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lmk_viz.cli.options import (
    BatchTokensOption,
    CacheOption,
    CapOption,
    CloseTailOption,
    DataSetArgument,
    DeviceOption,
    DtypeOption,
    EncoderOption,
    JsonOption,
    LanguageOption,
    MaxLengthOption,
    PerChunkOption,
    QueriesOption,
    SeedOption,
    SplitOption,
    TakenOption,
    TitlesOption,
    VariableOption,
    cached_embed,
    load_encoder,
    output_file,
    print_json,
    show_progress,
    whole_numbers,
)
from lmk_viz.config import ChunkingConfig
from lmk_viz.files import write_text
from lmk_viz.presets import DEFAULT_NAME

if TYPE_CHECKING:
    from lmk_viz.retrieval.sweep_rows import Sweep

__all__ = ["app"]

app = typer.Typer()

ENDINGS = (".json", ".csv")


@app.command("sweep")
def sweep_command(
    path: DataSetArgument = None,
    queries: QueriesOption = None,
    taken: TakenOption = "spread",
    split: SplitOption = "test",
    with_titles: TitlesOption = False,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: Annotated[
        str, typer.Option("--pooling", help="Poolings to compare, by commas.")
    ] = "cls,mean,landmark,every_k,multi_cls",
    granularities: Annotated[
        str,
        typer.Option(
            "--granularities", help="Tokens a chunk, variable and sentence; by commas; or none."
        ),
    ] = "8,16,32,64,128,256,512,variable,sentence",
    reference: Annotated[
        int, typer.Option("--reference", help="Granularity of MultiCLS and step of every-k.")
    ] = 32,
    each: Annotated[
        bool, typer.Option("--each", help="MultiCLS and every-k at each granularity too.")
    ] = False,
    query_granularity: Annotated[
        int | None,
        typer.Option("--query-granularity", help="Of the queries; else the documents' own."),
    ] = None,
    baseline: Annotated[
        str,
        typer.Option(
            "--baseline", help="Row that differences are taken to, as landmark:32; else the first."
        ),
    ] = "",
    metrics: Annotated[
        str, typer.Option("--metrics", help="The first decides the recommendation; by commas.")
    ] = "ndcg@10,recall@1,mrr@10",
    variable: VariableOption = None,
    per_chunk: PerChunkOption = False,
    seed: SeedOption = 0,
    language: LanguageOption = None,
    sentence_cap: CapOption = 256,
    close_tail: CloseTailOption = False,
    max_length: MaxLengthOption = None,
    batch_tokens: BatchTokensOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    cache: CacheOption = True,
    output: Annotated[
        str | None,
        typer.Option("--output", help="A .json or .csv file, written whenever there are new rows."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Quality against cost by granularity and pooling, with a recommendation."""
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.retrieval.metrics import parse_metrics
    from lmk_viz.retrieval.sources import open_dataset
    from lmk_viz.retrieval.sweep import run_sweep
    from lmk_viz.retrieval.sweep_settings import SweepConfig, plan_settings

    sizes, words = _split_granularities(granularities)
    drawn = ChunkingConfig().granularities
    chunking = ChunkingConfig(
        granularities=drawn if variable is None else whole_numbers("--variable", variable),
        per_chunk=per_chunk,
        seed=seed,
        language=language,
        sentence_cap=sentence_cap,
        close_tail=close_tail,
    )
    config = SweepConfig(
        poolings=tuple(p.mode for p in parse_poolings(pooling)),
        granularities=sizes,
        with_variable="variable" in words,
        with_sentence="sentence" in words,
        every_granularity=each,
        reference=reference,
        query_granularity=query_granularity,
        baseline=baseline,
        metrics=parse_metrics(metrics),
        seed=seed,
    )
    # Settings are checked before an encoder is loaded.
    config.baseline_of(plan_settings(config, chunking))
    save, embed = _saver(output, encoder), cached_embed(cache)
    dataset = open_dataset(path, queries, split, with_titles, taken, seed)

    def tell(found: "Sweep") -> None:
        typer.echo(f"{len(found.rows)} of {found.rows_wanted} rows", err=True)
        save(found)

    result = run_sweep(
        load_encoder(encoder, device, dtype),
        dataset,
        config,
        chunking,
        max_length,
        batch_tokens,
        embed,
        on_row=tell,
        progress=show_progress("encoded"),
    )
    for note in (*result.notes, *(f"{e.id}: {e.reason}" for e in result.excluded)):
        typer.echo(note, err=True)
    if as_json:
        print_json(result.to_dict(encoder) | {"split": dataset.split, "dtype": dtype})
    else:
        _print_table(result)


def _split_granularities(text: str) -> tuple[tuple[int, ...], set[str]]:
    """Returns the numbers of a list of granularities, and the words in it."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    words = {part for part in parts if part in ("variable", "sentence")}
    numbers = ",".join(part for part in parts if part not in words and part != "none")
    hint = "or variable or sentence, by commas, such as 32,64,sentence; or none"
    return whole_numbers("--granularities", numbers, hint), words


def _saver(output: str | None, encoder: str) -> "Callable[[Sweep], None]":
    """Returns what writes a sweep to a file; refuses the name before anything is measured."""
    if output is None:
        return lambda _: None
    target = output_file(output, ENDINGS)

    def save(found: "Sweep") -> None:
        if target.suffix == ".csv":
            write_text(found.to_frame().to_csv(index=False), target)
        else:
            write_text(json.dumps(found.to_dict(encoder), allow_nan=False) + "\n", target)

    return save


def _print_table(result: "Sweep") -> None:
    names = result.config.metrics
    first = names[0]
    typer.echo(
        f"{result.dataset}: {len(result.query_ids):,} queries, {result.documents:,} documents, "
        f"titles {'encoded' if result.with_titles else 'left out'}"
    )
    typer.echo(
        f"{'setting':<20}{first:>22}"
        + "".join(f"{name:>10}" for name in names[1:])
        + f"{f'minus {result.baseline}':>26}{'landmarks':>11}{'overhead':>10}{'tokens':>9}"
        f"{'seconds':>9}"
    )
    for row in result.row_dicts():
        typer.echo(
            f"{_mark(row):<20}{row[first]:>8.3f} ({_range(row, first)})"
            + "".join(f"{row[name]:>10.3f}" for name in names[1:])
            + f"{_difference(row, first):>26}{row['landmarks_per_document']:>11.1f}"
            f"{row['overhead']:>10.3f}{row['tokens_per_document']:>9,.0f}{row['seconds']:>9.1f}"
        )
    if any(not row.trained for row in result.rows):
        typer.echo("* the encoder was not trained for this pooling")
    chosen = result.recommendation()
    typer.echo(
        "One setting, so there is nothing to compare."
        if chosen is None
        else chosen.words(result.label)
    )


def _mark(row: dict[str, Any]) -> str:
    return str(row["name"]) if row["trained"] else f"{row['name']}*"


def _range(row: dict[str, Any], metric: str) -> str:
    return f"{row[f'{metric}_low']:.3f}-{row[f'{metric}_high']:.3f}"


def _difference(row: dict[str, Any], metric: str) -> str:
    found = row["difference"]
    if not found:
        return ""
    low, high = found[f"{metric}_low"], found[f"{metric}_high"]
    return f"{found[metric]:+.3f} ({low:+.3f} to {high:+.3f})"
