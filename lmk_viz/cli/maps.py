"""The verb that makes a page of a table of vectors: project."""

import json
from pathlib import Path
from typing import Annotated

import typer

from lmk_viz.cli.options import JsonOption, print_json
from lmk_viz.config import ProjectionConfig, ProjectionMethod

__all__ = ["app"]

app = typer.Typer()


@app.command()
def project(
    source: Annotated[
        str, typer.Argument(metavar="FILE", help="A .parquet file that `embed` wrote.")
    ],
    output: Annotated[str, typer.Option("--output", help="An .html file to write.")],
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Columns to draw, by commas; else all.")
    ] = None,
    method: Annotated[
        ProjectionMethod, typer.Option("--method", help="auto: PCA below 15 documents.")
    ] = ProjectionMethod.AUTO,
    n_neighbors: Annotated[int, typer.Option("--n-neighbors")] = ProjectionConfig().n_neighbors,
    min_dist: Annotated[float, typer.Option("--min-dist")] = ProjectionConfig().min_dist,
    metric: Annotated[
        str, typer.Option("--metric", help=", ".join(ProjectionConfig.METRICS))
    ] = ProjectionConfig().metric,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    colour: Annotated[
        str, typer.Option("--colour", help="A column: label, tokens, or any other.")
    ] = "label",
    stability: Annotated[
        int, typer.Option("--stability", help="Seeds to compare layouts of; 0 for none.")
    ] = 0,
    as_json: JsonOption = False,
) -> None:
    """Lay vectors out on a plane: a page that works offline, coordinates and numbers beside it."""
    from lmk_viz.alignment import layout_stability
    from lmk_viz.figures.map_page import render_map_page
    from lmk_viz.files import write_text
    from lmk_viz.map_table import coordinates_frame, load_vectors, write_frame
    from lmk_viz.maps import build_map, numbers_frame
    from lmk_viz.pooling import parse_poolings

    target = Path(output)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"--output is {output!r}; give a name that ends in .html.")
    if not target.parent.is_dir():
        raise ValueError(f"--output is {output!r}; its folder does not exist.")
    config = ProjectionConfig(method, n_neighbors, min_dist, seed, metric)
    wanted = None if pooling is None else [p.mode for p in parse_poolings(pooling)]
    table = load_vectors(source, wanted)
    colours = table.column(colour)
    found = build_map(table.vectors, table.labels, table.tokens, config)
    stable = {
        mode.value: layout_stability(rows, config, stability)
        for mode, rows in (table.vectors.items() if stability else ())
    }
    stem = target.with_suffix("")
    files = {
        "page": target,
        "coordinates_csv": stem.with_name(f"{stem.name}.coordinates.csv"),
        "coordinates_parquet": stem.with_name(f"{stem.name}.coordinates.parquet"),
        "numbers_csv": stem.with_name(f"{stem.name}.numbers.csv"),
        "numbers_parquet": stem.with_name(f"{stem.name}.numbers.parquet"),
    }
    page = render_map_page(f"Map of {Path(source).stem}", table, found, config, colour, colours)
    write_text(page, files["page"])
    for name, frame in (
        ("coordinates", coordinates_frame(table, found)),
        ("numbers", numbers_frame(found, stable)),
    ):
        write_frame(frame, files[f"{name}_csv"])
        write_frame(frame, files[f"{name}_parquet"])
    result = {
        "files": {name: str(path) for name, path in files.items()},
        "config": {
            "method": config.method.value,
            "n_neighbors": config.n_neighbors,
            "min_dist": config.min_dist,
            "metric": config.metric,
            "seed": config.seed,
        },
        **json.loads(json.dumps(found.to_dict())),
        "excluded": [{"id": e.id, "reason": e.reason} for e in table.excluded],
    }
    for left_out in table.excluded:
        typer.echo(f"left out {left_out.id}: {left_out.reason}", err=True)
    if as_json:
        print_json(result)
        return
    typer.echo(f"{len(table):,} documents under {', '.join(m.value for m in table.vectors)}")
    for sentence in result["findings"]:
        typer.echo(sentence)
    typer.echo("\n".join(f"written: {path}" for path in files.values()))
