"""The verb that lists encoders or describes one."""

from typing import Annotated, Any

import typer

from lmk_viz.cli.options import (
    DeviceOption,
    JsonOption,
    load_encoder,
    print_json,
)
from lmk_viz.presets import PRESETS

__all__ = ["app"]

app = typer.Typer()


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
        model = load_encoder(name, device)
        facts = {**model.facts(), "reports_attention": model.reports_attention}
        if as_json:
            print_json(facts)
        else:
            typer.echo("\n".join(f"{key}: {value}" for key, value in facts.items()))
        return
    rows: list[dict[str, Any]] = [
        {
            "name": preset.name,
            "title": preset.title,
            "offline": preset.is_offline,
            "trained_for": preset.trained_for.value if preset.trained_for else None,
            "trained_poolings": [mode.value for mode in preset.trained_poolings],
            "positions": preset.positions,
            "note": preset.note,
        }
        for preset in PRESETS
    ]
    if as_json:
        print_json({"encoders": rows})
        return
    for row in rows:
        trained = ", ".join(row["trained_poolings"]) or "-"
        typer.echo(f"{row['name']:<46}{row['positions']:<18}{row['note']} Trained for: {trained}.")
