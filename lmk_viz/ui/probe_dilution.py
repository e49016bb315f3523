"""What the dilution view and the length view share of dilution: its run and its Python."""

from typing import Any

from lmk_viz.config import PoolingConfig, digest
from lmk_viz.ui import state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.probe_inputs import Request, pick_fillers, pick_needles
from lmk_viz.ui.probe_parts import poolings_code, probe_snippet
from lmk_viz.ui.probe_runs import (
    Progress,
    ShouldStop,
    in_turn,
    names,
    needles_key,
    per_text,
    pick_encoders,
    texts_key,
)

__all__ = ["BESIDE", "dilution_code", "dilution_request"]

BESIDE = 64
"""Tokens to leave for a fact, of some forty, that stands beside the text."""


def dilution_request(
    inputs: Inputs,
    encoder: Any,
    poolings: tuple[PoolingConfig, ...],
    added: tuple[int, ...],
    view: str,
) -> Request:
    """Draws the choice of the control and returns the run.

    Args:
        inputs: of the page.
        encoder: to measure.
        poolings: to compare.
        added: tokens of unrelated text at each step.
        view: where the result is shown, part of its key.
    """
    from lmk_viz.probes.dilution import Side, dilution_curves

    encoders = pick_encoders(inputs, encoder)
    documents, filler = pick_needles(), pick_fillers(inputs)[0]
    side, seed = Side(state.PROBE_SIDE.get()), state.PROBE_SEED.get()

    def run(model: Any, progress: Progress, should_stop: ShouldStop) -> Any:
        return dilution_curves(
            model,
            documents,
            filler,
            poolings,
            added,
            inputs.chunking,
            side,
            seed,
            progress,
            should_stop,
        )

    key = digest(
        view,
        "dilution",
        inputs.encoder,
        inputs.chunking,
        names(poolings),
        needles_key(documents),
        texts_key([filler]),
        added,
        side.value,
        seed,
        len(encoders),
    )
    count = len(documents) * per_text(encoder, poolings) * len(encoders)
    passes = ((count, 32), *((count, step + 32) for step in added))
    return Request(key, in_turn(encoders, run), "Adding text, pass", passes, encoder)


def dilution_code(result: Any, inputs: Inputs) -> str:
    """Returns the Python that gives the numbers of a result."""
    imports = [
        "from lmk_viz.probes.dilution import Side, dilution_curves",
        "from lmk_viz.probes.needles import draw_needles, load_needles",
    ]
    lines = [
        f"documents = draw_needles(load_needles(), {len(result.documents)}, "
        f"{state.PROBE_SEED.get()})",
        f"filler = next(d for d in sample_documents() if d.id == {result.filler!r})",
        f"result = dilution_curves(encoder, documents, filler, {poolings_code()},",
        f"    {tuple(result.added.tolist())}, chunking, Side({result.side.value!r}))",
        "print(result.to_frame())",
    ]
    return probe_snippet(inputs, imports, lines)
