"""Verbs on retrieval: evaluate, extrapolate."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from lmk_viz.cli.options import (
    BatchTokensOption,
    CacheOption,
    DataSetArgument,
    DeviceOption,
    DtypeOption,
    EncoderOption,
    JsonOption,
    MaxLengthOption,
    QueriesOption,
    SplitOption,
    TakenOption,
    TitlesOption,
    cached_embed,
    load_encoder,
    output_file,
    print_json,
    show_progress,
    takes_chunking,
    whole_numbers,
)
from lmk_viz.config import ChunkingConfig, PoolingMode
from lmk_viz.files import write_text
from lmk_viz.presets import DEFAULT_NAME

__all__ = ["app"]

app = typer.Typer()

PoolingsOption = Annotated[
    str, typer.Option("--pooling", help=f"{', '.join(PoolingMode)}; by commas.")
]
BaselineOption = Annotated[
    PoolingMode, typer.Option("--baseline", help="Pooling that differences are taken to.")
]


@app.command("evaluate")
@takes_chunking
def evaluate_command(
    chunking: ChunkingConfig,
    path: DataSetArgument = None,
    queries: QueriesOption = None,
    taken: TakenOption = "spread",
    pooling: PoolingsOption = "cls,mean,landmark",
    encoder: EncoderOption = DEFAULT_NAME,
    split: SplitOption = "test",
    metrics: Annotated[
        str, typer.Option("--metrics", help="ndcg, recall, mrr, map or precision @k; by commas.")
    ] = "ndcg@10,recall@1,recall@10,mrr@10",
    baseline: BaselineOption = PoolingMode.LANDMARK,
    with_titles: TitlesOption = False,
    with_bm25: Annotated[bool, typer.Option("--bm25/--no-bm25", help="Add BM25.")] = True,
    multi_vector: Annotated[
        bool,
        typer.Option(
            "--multi-vector/--no-multi-vector",
            help="Add max-sim over landmarks, late chunking and passages embedded apart.",
        ),
    ] = False,
    max_length: MaxLengthOption = None,
    batch_tokens: BatchTokensOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Retrieval by each pooling on a data set, with 95 % intervals and paired differences."""
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.retrieval.chunk_vectors import MultiVector
    from lmk_viz.retrieval.evaluate import evaluate
    from lmk_viz.retrieval.metrics import parse_metrics
    from lmk_viz.retrieval.sources import open_dataset

    poolings, names = parse_poolings(pooling), parse_metrics(metrics)
    dataset = open_dataset(path, queries, split, with_titles, taken, chunking.seed)
    embed = cached_embed(cache)
    result = evaluate(
        load_encoder(encoder, device, dtype),
        dataset,
        poolings,
        chunking,
        max_length,
        names,
        baseline,
        with_bm25,
        batch_tokens=batch_tokens,
        progress=show_progress("encoded"),
        multi_vector=tuple(MultiVector) if multi_vector else (),
        embed=embed,
    ).to_dict()
    result |= {"split": dataset.split, "dtype": dtype, "metrics": list(names)}
    for note in (*result["notes"], *(f"{e['id']}: {e['reason']}" for e in result["excluded"])):
        typer.echo(note, err=True)
    if as_json:
        print_json(result)
        return
    typer.echo(
        f"{result['dataset']}: {result['queries']:,} queries, {result['documents']:,} documents, "
        f"titles {'encoded' if with_titles else 'left out'}; chunks {result['chunking']}"
    )
    rows = [*result["rows"], *([result["bm25"]] if result["bm25"] else [])]
    groups = sorted({g["group"] for row in rows for g in row["by_depth"]}, key=_depth_order)
    typer.echo(
        f"{'pooling':<18}"
        + "".join(f"{name:>22}" for name in names)
        + "".join(f"{group:>9}" for group in groups)
        + f"{'cut':>7}{'seconds':>9}"
    )
    for row in rows:
        depths = {group["group"]: group[names[0]] for group in row["by_depth"]}
        typer.echo(
            f"{_mark(row):<18}"
            + "".join(
                f"{row[n]:>8.3f} ({row[f'{n}_low']:.3f}-{row[f'{n}_high']:.3f})" for n in names
            )
            + "".join(f"{depths[g]:>9.3f}" if g in depths else f"{'-':>9}" for g in groups)
            + f"{row['documents_cut']:>7,}{row['seconds']:>9.1f}"
        )
    if groups:
        typer.echo(f"The columns {', '.join(groups)} are {names[0]} by depth of the answer.")
    for row in rows:
        if row["difference"]:
            low, high = (row["difference"][f"{names[0]}_{end}"] for end in ("low", "high"))
            p, corrected = (row["difference"][f"{names[0]}_{end}"] for end in ("p", "p_holm"))
            typer.echo(
                f"{row['pooling']} minus {result['baseline']}, {names[0]}: "
                f"{row['difference'][names[0]]:+.3f} ({low:+.3f} to {high:+.3f}), "
                f"p {_p(p)}, corrected {_p(corrected)}"
            )
    if multi_vector:
        typer.echo(f"{'index':<18}{'vectors':>12}{'MiB':>10}{'ms a query':>12}")
        for row in rows:
            if row["index"]:
                typer.echo(
                    f"{row['pooling']:<18}{row['index']['vectors']:>12,}"
                    f"{row['index']['bytes'] / 2**20:>10.2f}"
                    f"{row['index']['seconds_a_query'] * 1e3:>12.2f}"
                )
        typer.echo("A query takes as many dot products as the index has vectors.")
    _explain_mark(rows)


@app.command("extrapolate")
@takes_chunking
def extrapolate_command(
    chunking: ChunkingConfig,
    pooling: PoolingsOption = "cls,mean,landmark",
    encoder: EncoderOption = DEFAULT_NAME,
    multiples: Annotated[
        str, typer.Option("--multiples", help="Of the training length; by commas.")
    ] = "1,2,4,8,16,32",
    documents: Annotated[int, typer.Option("--documents", help="Documents a length.")] = 150,
    length: Annotated[
        int | None, typer.Option("--length", help="Training length in tokens; else the encoder's.")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", help="Passages (JSONL); else the bundled held-out ones.")
    ] = None,
    baseline: BaselineOption = PoolingMode.LANDMARK,
    output: Annotated[
        str | None,
        typer.Option("--output", help="A .json file, written after each row and taken up again."),
    ] = None,
    batch_tokens: BatchTokensOption = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Retrieval in documents of 1, 2, 4, ... times the training length, by length and depth."""
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.retrieval.extrapolate import (
        Extrapolation,
        ExtrapolationConfig,
        extrapolate,
        training_length,
    )
    from lmk_viz.retrieval.passages import HELD_OUT_FILE, load_passages

    poolings = parse_poolings(pooling)
    sizes = whole_numbers("--multiples", multiples)
    # Settings are checked before an encoder is loaded.
    ExtrapolationConfig(256 if length is None else length, sizes, documents, chunking.seed)
    target = None if output is None else output_file(output, (".json",))
    passages = load_passages(data or HELD_OUT_FILE)
    kept = _read_kept(target) if target is not None and target.is_file() else None
    model = load_encoder(encoder, device, dtype)
    chosen = training_length(model) if length is None else length

    def save(found: Extrapolation) -> None:
        typer.echo(f"rows so far: {len(found.rows)}", err=True)
        if target is not None:
            _write_json(target, found.to_dict())

    result = extrapolate(
        model,
        passages,
        poolings,
        ExtrapolationConfig(chosen, sizes, documents, chunking.seed),
        chunking,
        baseline,
        batch_tokens,
        kept,
        save,
        _show_step(),
    ).to_dict()
    if target is not None:
        _write_json(target, result)
    if as_json:
        print_json(result)
        return
    typer.echo(
        f"{documents:,} documents a length, training length {chosen:,} tokens; chunks "
        f"{result['settings']['chunking']}"
    )
    typer.echo(
        f"{'pooling':<18}{'length':>8}{'tokens':>8}{'nDCG@10':>10}{'95 %':>15}{'recall@1':>10}"
        f"{'start':>8}{'middle':>8}{'end':>8}{'end/start':>11}{'seconds':>9}"
    )
    for row in result["rows"]:
        ratio = row["end_to_start"]
        thirds = (row["start"], row["middle"], row["end"])
        typer.echo(
            f"{_mark(row):<18}{row['multiple']:>7}x{row['tokens']:>8,.0f}{row['ndcg@10']:>10.3f}"
            f"{row['ndcg@10_low']:>9.3f}-{row['ndcg@10_high']:.3f}{row['recall@1']:>10.3f}"
            + "".join(f"{'-':>8}" if value is None else f"{value:>8.3f}" for value in thirds)
            + (f"{'-':>11}" if ratio is None else f"{ratio:>11.2f}")
            + f"{row['seconds']:>9.1f}"
        )
    _explain_mark(result["rows"])


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def _mark(row: dict[str, Any]) -> str:
    return f"{row['pooling']}*" if row["trained"] is False else str(row["pooling"])


def _explain_mark(rows: list[dict[str, Any]]) -> None:
    if any(row["trained"] is False for row in rows):
        typer.echo("* the encoder was not trained for this pooling")


def _depth_order(group: str) -> tuple[int, str]:
    known = ("start", "middle", "end")
    return (known.index(group) if group in known else len(known), group)


def _read_kept(target: Path) -> dict[str, Any]:
    try:
        kept = json.loads(target.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(
            f"{target} exists and cannot be read ({error}); give another --output."
        ) from error
    if not isinstance(kept, dict) or not isinstance(kept.get("rows"), list):
        raise ValueError(f"{target} exists and holds no rows; give another --output.")
    return kept


def _write_json(target: Path, value: dict[str, Any]) -> None:
    write_text(json.dumps(value, allow_nan=False) + "\n", target)


def _show_step() -> Any:
    """Returns a callback that tells each step once, and counts on a terminal."""
    state = {"step": ""}

    def show(step: str, done: int, total: int) -> None:
        if step != state["step"]:
            state["step"] = step
            typer.echo(f"{step} tokens: {total} texts", err=True)
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            typer.echo(f"\r{done}/{total}{end}", err=True, nl=False)

    return show
