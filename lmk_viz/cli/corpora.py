"""Verbs on a corpus: embed."""

from pathlib import Path
from typing import Annotated

import typer

from lmk_viz.cli.options import (
    CacheOption,
    DeviceOption,
    EncoderOption,
    JsonOption,
    MaxLengthOption,
    cached_embed,
    load_encoder,
    print_json,
    show_progress,
    takes_chunking,
)
from lmk_viz.config import ChunkingConfig, PoolingMode
from lmk_viz.presets import DEFAULT_NAME

__all__ = ["app"]

app = typer.Typer()


@app.command()
@takes_chunking
def embed(
    source: Annotated[
        str, typer.Argument(metavar="INPUT", help="JSONL, CSV, TSV, Parquet, a folder or a text.")
    ],
    output: Annotated[str, typer.Option("--output", help="A .parquet file to write.")],
    chunking: ChunkingConfig,
    pooling: Annotated[
        str, typer.Option("--pooling", help=f"{', '.join(PoolingMode)}; by commas.")
    ] = "cls,mean,landmark",
    encoder: EncoderOption = DEFAULT_NAME,
    max_length: MaxLengthOption = None,
    text_column: Annotated[str, typer.Option("--text-column")] = "text",
    label_column: Annotated[str, typer.Option("--label-column")] = "label",
    device: DeviceOption = "auto",
    cache: CacheOption = True,
    as_json: JsonOption = False,
) -> None:
    """Embed a corpus: one row a document in order, one column of unit vectors a pooling."""
    from lmk_viz.corpus import Columns, load_corpus
    from lmk_viz.files import write_whole
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
    embed_corpus = cached_embed(cache)
    model = load_encoder(encoder, device)
    table = embed_corpus(
        model, corpus.documents, poolings, chunking, max_length, progress=show_progress("embedded")
    )
    excluded = (*corpus.excluded, *table.excluded)
    for left_out in excluded:
        typer.echo(f"left out {left_out.id}: {left_out.reason}", err=True)
    write_whole(target, lambda partial: table.to_frame().to_parquet(partial, index=False))
    summary = {
        "output": str(target),
        "encoder": model.name,
        "trained_for": model.trained_for.value if model.trained_for else None,
        "trained_poolings": sorted(mode.value for mode in model.trained_poolings),
        "chunking": chunking.describe(),
        "poolings": [p.mode.value for p in table.poolings],
        "documents": len(table),
        "excluded": [{"id": e.id, "reason": e.reason} for e in excluded],
        "documents_cut": int(table.was_cut.sum()),
        "embedding_dim": model.embedding_dim,
        "seconds": table.seconds,
    }
    if as_json:
        print_json(summary)
        return
    typer.echo(
        f"{summary['documents']} documents under {', '.join(p.label for p in table.poolings)} in "
        f"{table.seconds:.1f} s; {summary['documents_cut']} cut by the length limit, "
        f"{len(excluded)} left out; written to {target}"
    )
