"""Verbs on one document: landmarks, attention."""

from typing import Annotated

import typer

from lmk_viz.cli.options import (
    DeviceOption,
    EncoderOption,
    JsonOption,
    LayoutOption,
    MaxLengthOption,
    load_encoder,
    print_json,
    progress_by_layer,
    takes_chunking,
)
from lmk_viz.config import AttentionConfig, ChunkingConfig, LayoutKind
from lmk_viz.presets import DEFAULT_NAME

__all__ = ["app"]

app = typer.Typer()


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
    model = load_encoder(encoder, device)
    made = model.layout(document.text, layout, chunking, max_length)
    stats = measure_layout(made, chunking.language)
    if as_json:
        print_json(
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
    model = load_encoder(encoder, device)
    made = model.layout(document.text, layout, chunking, max_length)
    model.check_memory(len(made), 1 + made.n_landmarks)
    profile = model.attention_profile(made, config, progress_by_layer(model.layers_to_read(made)))
    if as_json:
        print_json(
            {
                "document": document.id,
                "encoder": model.name,
                "trained_for": model.trained_for.value if model.trained_for else None,
                "row_sources": {m.value: name for m, name in model.row_sources(made).items()},
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
        "rows: " + ", ".join(f"{m.value} from {n}" for m, n in model.row_sources(made).items()),
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
