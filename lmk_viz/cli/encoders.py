"""The verb that lists encoders or describes one."""

from typing import Annotated

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
        print_json({"encoders": rows})
        return
    for row in rows:
        typer.echo(
            f"{row['name']:<46}{row['positions']:<18}{row['trained_for'] or '-':<8}{row['note']}"
        )
