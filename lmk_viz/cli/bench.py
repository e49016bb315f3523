"""The benchmarks: speed and memory, side by side in one run."""

from typing import Annotated, Any

import typer

from lmk_viz.cli.options import (
    JsonOption,
    print_json,
)

__all__ = ["app"]

app = typer.Typer(help="Measure speed and memory, side by side in one run.")


@app.command("attention")
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
        print_json(result)
        return
    for name in ("memory_ratio", "time_ratio", "forward_speedup", "peak_rss_gib"):
        value = result[name]
        typer.echo(f"{name:<24}" + ("-" if value is None else f"{value:.3f}"))
    for name, value in (*result["absolute"].items(), *result.get("longest", {}).items()):
        typer.echo(
            f"  {name:<22}{value:,.3f}" if isinstance(value, float) else f"  {name:<22}{value:,}"
        )


@app.command("forecast")
def bench_forecast_command(as_json: JsonOption = False) -> None:
    """What a long run is forecast to take against what it takes, three shapes by three lengths."""
    from lmk_viz.bench import bench_forecast

    rows = bench_forecast(report=lambda what: typer.echo(what, err=True))
    if as_json:
        print_json({"rows": rows})
        return
    for row in rows:
        typer.echo(
            f"{row['shape']:<18}{row['tokens']:>7,}  {row['forecast_seconds']:8.2f} s forecast, "
            f"{row['seconds']:8.2f} s ({row['seconds_ratio']:.2f})  {row['forecast_mib']:8.0f} MiB "
            f"forecast, {row['mib']:8.0f} MiB ({row['memory_ratio'] or 0:.2f})"
        )


@app.command("map")
def bench_map_command(
    documents: Annotated[int, typer.Option("--documents", help="Rows of each table.")] = 5_000,
    dimensions: Annotated[int, typer.Option("--dimensions")] = 384,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    as_json: JsonOption = False,
) -> None:
    """Three aligned maps against umap-learn called plainly; the time of another colour."""
    from lmk_viz.bench_map import MapBench, bench_map
    from lmk_viz.config import ProjectionMethod
    from lmk_viz.figures.projection import colour_values, map_figure

    def draw(points: Any, values: list[Any]) -> int:
        hover = [
            f"<b>document {i}</b><br>about so many words of a text" for i in range(len(points))
        ]
        figure = map_figure(
            points, colour_values("colour", values), hover, "CLS", ProjectionMethod.UMAP
        )
        return len(figure.to_json())

    settings = MapBench(documents, dimensions, seed=seed)
    result = bench_map(settings, draw, lambda what: typer.echo(what, err=True))
    if as_json:
        print_json(result)
        return
    for name, value in result.items():
        if name != "settings":
            typer.echo(f"{name:<24}{value:,.3f}")


@app.command("encode")
def bench_encode_command(
    encoder: Annotated[
        str, typer.Option("--encoder", help="lmk-mini-backbone, or another; no family.")
    ] = "lmk-mini-backbone",
    documents: Annotated[int, typer.Option("--documents")] = 500,
    shortest: Annotated[int, typer.Option("--shortest", help="Tokens.")] = 32,
    longest: Annotated[int, typer.Option("--longest", help="Tokens.")] = 2048,
    granularity: Annotated[int, typer.Option("--granularity")] = 32,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    as_json: JsonOption = False,
) -> None:
    """A corpus of mixed length against sentence-transformers; five poolings against one."""
    from lmk_viz.bench_encode import EncodeBench, bench_encode

    settings = EncodeBench(encoder, documents, shortest, longest, granularity, seed=seed)
    result = bench_encode(settings, lambda what: typer.echo(what, err=True))
    if as_json:
        print_json(result)
        return
    for name in ("speedup", "five_ratio", "largest_difference"):
        typer.echo(f"{name:<24}{result[name]:.3g}")
    for name, value in result["documents_per_second"].items():
        typer.echo(f"  {name:<22}{value:,.2f} documents a second")
