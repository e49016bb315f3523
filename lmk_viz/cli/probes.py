"""The probes: what a document vector depends on, by position."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from lmk_viz.cli.options import (
    DeviceOption,
    DtypeOption,
    EncoderOption,
    JsonOption,
    MaxLengthOption,
    load_encoder,
    print_json,
    show_progress,
    takes_chunking,
    whole_numbers,
)
from lmk_viz.config import ChunkingConfig
from lmk_viz.presets import DEFAULT_NAME

__all__ = ["app"]

app = typer.Typer(help="Probe what a document vector depends on, by position.")

DEFAULT_POOLINGS = "cls,mean,every_k,landmark"
DEFAULT_TOKENS = 512

FileArgument = Annotated[str, typer.Argument(help="A text file.")]
PoolingOption = Annotated[
    str, typer.Option("--pooling", help="One or several, separated by commas.")
]
TokensOption = Annotated[
    int | None,
    typer.Option("--tokens", help="Text tokens a document; else 512, or what the encoder takes."),
]
NeedlesOption = Annotated[
    str,
    typer.Option("--needles", help="How many of the bundled ones, or a JSONL file of your own."),
]
FillerOption = Annotated[
    list[str] | None,
    typer.Option("--filler", help="A text file; may be given several times. Else bundled text."),
]
FillersOption = Annotated[int, typer.Option("--fillers", help="How many bundled fillers.")]
DepthsOption = Annotated[int, typer.Option("--depths", help="Equally spaced depths.")]
BorderOption = Annotated[
    str, typer.Option("--border", help="Where needles may stand: between sentence or token.")
]
RandomOption = Annotated[
    bool, typer.Option("--random", help="Add the same run on random weights, the control.")
]


@app.command()
@takes_chunking
def needle(
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: PoolingOption = DEFAULT_POOLINGS,
    tokens: TokensOption = None,
    needles: NeedlesOption = "40",
    depths: DepthsOption = 10,
    filler: FillerOption = None,
    fillers: FillersOption = 1,
    border: BorderOption = "sentence",
    random: RandomOption = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Hide a fact at several depths and ask for it: cosine and rank by depth. --seed draws."""
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.probes.needle import NeedleConfig, needle_curves
    from lmk_viz.probes.placing import Border
    from lmk_viz.probes.runs import fitting_tokens

    poolings = parse_poolings(pooling)
    place = Border(border)
    hidden = _needles(needles, chunking.seed)
    texts = _fillers(filler, fillers)
    model = load_encoder(encoder, device, dtype)
    length = fitting_tokens(model, chunking, DEFAULT_TOKENS) if tokens is None else tokens
    config = NeedleConfig(length, depths, place, chunking.seed)

    def run(encoder: Any) -> dict[str, Any]:
        show = show_progress("pass")
        return needle_curves(encoder, hidden, texts, poolings, config, chunking, show).to_dict()

    found = _with_random(run, model, random, chunking)
    if as_json:
        print_json(found)
        return
    _print_needle_rows(found, model.name)
    for row in found.get("random_weights", []):
        typer.echo(f"{'random: ' + row['pooling']:<20}{_scalars(row)}")


@app.command()
@takes_chunking
def lengths(
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: PoolingOption = DEFAULT_POOLINGS,
    probe: Annotated[
        str, typer.Option("--probe", help="needle, influence, segments or shuffle.")
    ] = "needle",
    tokens: Annotated[int, typer.Option("--tokens", help="The shortest length.")] = 128,
    factors: Annotated[str, typer.Option("--factors", help="Multiples of it.")] = "1,2,4,8",
    needles: NeedlesOption = "12",
    depths: DepthsOption = 10,
    filler: FillerOption = None,
    fillers: FillersOption = 1,
    border: BorderOption = "sentence",
    random: RandomOption = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """A probe at multiples of a length. --seed draws the needles.

    Influence, segments and shuffle are of the fillers' starts, with intervals over fillers.
    Dilution has length for its axis already: see its --steps.
    """
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.probes.document_lengths import NUMBERS, DocumentProbe, document_by_length
    from lmk_viz.probes.lengths import needle_by_length
    from lmk_viz.probes.needle import NeedleConfig
    from lmk_viz.probes.placing import Border

    poolings = parse_poolings(pooling)
    of_document = None if probe == "needle" else DocumentProbe(probe)
    config = NeedleConfig(tokens, depths, Border(border), chunking.seed)
    wanted = whole_numbers("--factors", factors)
    hidden, texts = _needles(needles, chunking.seed), _fillers(filler, fillers)
    model = load_encoder(encoder, device, dtype)

    def run(encoder: Any) -> dict[str, Any]:
        if of_document is None:
            show = show_progress("pass")
            result = needle_by_length(
                encoder, hidden, texts, poolings, config, wanted, chunking, show
            )
            return {
                "encoder": encoder.name,
                "chunking": chunking.describe(),
                "needles": len(hidden),
                "fillers": [text.id for text in texts],
                **result.to_dict(),
            }
        other = _unrelated(None, texts[0].text).text
        return document_by_length(
            encoder,
            texts,
            poolings,
            of_document,
            tokens,
            wanted,
            chunking,
            chunking.seed,
            other,
            show_progress("text"),
        ).to_dict()

    found = _with_random(run, model, random, chunking)
    if as_json:
        print_json(found)
        return
    names = ("psi", "slope", "first_minus_last") if of_document is None else NUMBERS[of_document]
    typer.echo(f"{probe}, {len(texts)} fillers, encoder {model.name}")
    for before, rows in (("", found["rows"]), ("random: ", found.get("random_weights", []))):
        for row in rows:
            typer.echo(f"{row['tokens']:>7,} {before + row['pooling']:<24}{_scalars(row, names)}")


@app.command()
@takes_chunking
def influence(
    file: FileArgument,
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: PoolingOption = DEFAULT_POOLINGS,
    unit: Annotated[str, typer.Option("--unit", help="Leave out a chunk or a sentence.")] = "chunk",
    floor: Annotated[
        bool, typer.Option("--floor/--no-floor", help="Also a neutral filler at each place.")
    ] = True,
    random: RandomOption = False,
    max_length: MaxLengthOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Leave each part of a text out: how far does the vector move? Beside the attention on it."""
    from lmk_viz.documents import read_document
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.probes.influence import NEUTRAL_TEXT, InfluenceSummary, Unit, leave_one_out

    poolings, part = parse_poolings(pooling), Unit(unit)
    document = read_document(file)
    model = load_encoder(encoder, device)

    def run(encoder: Any) -> dict[str, Any]:
        return leave_one_out(
            encoder,
            document.text,
            poolings,
            chunking,
            max_length,
            part,
            NEUTRAL_TEXT if floor else None,
            progress=show_progress("pass"),
        ).to_dict()

    found = _with_random(run, model, random, chunking)
    if as_json:
        print_json({"document": document.id, **found})
        return
    typer.echo(
        f"{document.title}: {len(found['borders']) - 1} {part.value}s, {found['tokens_cut']:,} of "
        f"{found['tokens']:,} tokens cut, encoder {model.name}"
    )
    names = InfluenceSummary.__dataclass_fields__
    for before, rows in (("", found["rows"]), ("random: ", found.get("random_weights", []))):
        for row in rows:
            words = "  ".join(f"{name} {_shown(row[name])}" for name in names)
            typer.echo(f"{before + row['pooling']:<28}{words}")


@app.command()
@takes_chunking
def segments(
    file: FileArgument,
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: PoolingOption = DEFAULT_POOLINGS,
    count: Annotated[int, typer.Option("--segments", help="Equal parts.")] = 10,
    unrelated: Annotated[
        str | None, typer.Option("--unrelated", help="A text file for the control; else bundled.")
    ] = None,
    random: RandomOption = False,
    max_length: MaxLengthOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Embed each tenth of a text alone and compare it with the whole."""
    from lmk_viz.documents import read_document
    from lmk_viz.embedding_encoder import trained_poolings
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.probes import segment_cosines

    poolings = parse_poolings(pooling)
    document = read_document(file)
    other = _unrelated(unrelated, document.text)
    model = load_encoder(encoder, device)

    def run(encoder: Any) -> Any:
        return segment_cosines(
            encoder, document.text, poolings, chunking, max_length, count, unrelated=other.text
        )

    result = run(model)
    control = run(model.with_random_weights(chunking.seed)) if random else None
    if as_json:
        print_json(
            {
                "document": document.id,
                "unrelated_document": other.id,
                "encoder": model.name,
                "chunking": chunking.describe(),
                "trained": sorted(mode.value for mode in trained_poolings(model)),
                **result.to_dict(),
                **({} if control is None else {"random_weights": control.to_dict()}),
            }
        )
        return
    typer.echo(f"{document.title}: cosine of each part with the whole, encoder {model.name}")
    runs = {"": result} if control is None else {"": result, "random: ": control}
    for before, found in runs.items():
        for mode, values in found.cosines.items():
            typer.echo(
                f"{before + mode.value:<28}"
                + " ".join(f"{value:6.3f}" for value in values)
                + f"   unrelated {_shown(found.unrelated.get(mode))}"
            )


@app.command()
@takes_chunking
def shuffle(
    file: FileArgument,
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: PoolingOption = DEFAULT_POOLINGS,
    shuffles: Annotated[int, typer.Option("--shuffles", help="Random orders.")] = 8,
    unrelated: Annotated[
        str | None, typer.Option("--unrelated", help="A text file for the control; else bundled.")
    ] = None,
    random: RandomOption = False,
    max_length: MaxLengthOption = None,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Put the chunks of a text in other orders: does the vector stay? --seed draws them."""
    from lmk_viz.documents import read_document
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.probes.shuffle import shuffle_cosines

    poolings = parse_poolings(pooling)
    document = read_document(file)
    other = _unrelated(unrelated, document.text)
    model = load_encoder(encoder, device)

    def run(encoder: Any) -> dict[str, Any]:
        return shuffle_cosines(
            encoder,
            document.text,
            poolings,
            chunking,
            max_length,
            shuffles,
            chunking.seed,
            other.text,
            show_progress("pass"),
        ).to_dict()

    found = _with_random(run, model, random, chunking)
    if as_json:
        print_json({"document": document.id, "unrelated_document": other.id, **found})
        return
    typer.echo(f"{document.title}: {found['chunks']} chunks in {shuffles} orders, {model.name}")
    for before, rows in (("", found["rows"]), ("random: ", found.get("random_weights", []))):
        for row in rows:
            typer.echo(
                f"{before + row['pooling']:<28}mean {_ranged(row, 'mean')}  reversed "
                f"{_shown(row['reversed'])}  unrelated {_shown(row['unrelated'])}"
            )


@app.command()
@takes_chunking
def dilution(
    chunking: ChunkingConfig,
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: PoolingOption = DEFAULT_POOLINGS,
    tokens: TokensOption = None,
    steps: Annotated[
        str | None, typer.Option("--steps", help="Tokens of unrelated text, as 0,64,256.")
    ] = None,
    needles: NeedlesOption = "40",
    filler: FillerOption = None,
    side: Annotated[
        str, typer.Option("--side", help="Where the text goes: after, before or around.")
    ] = "after",
    random: RandomOption = False,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Add unrelated text step by step: cosine and rank of a fact for its question."""
    from lmk_viz.pooling import parse_poolings
    from lmk_viz.probes.dilution import Side, dilution_curves, steps_up_to
    from lmk_viz.probes.runs import fitting_tokens

    poolings, where = parse_poolings(pooling), Side(side)
    given = None if steps is None else whole_numbers("--steps", steps)
    documents, texts = _needles(needles, chunking.seed), _fillers(filler, 1)
    model = load_encoder(encoder, device)
    # A fact of some forty tokens stands in the document beside the text.
    length = fitting_tokens(model, chunking, DEFAULT_TOKENS) - 64 if tokens is None else tokens
    added = steps_up_to(length) if given is None else given

    def run(encoder: Any) -> dict[str, Any]:
        show = show_progress("pass")
        return dilution_curves(
            encoder, documents, texts[0], poolings, added, chunking, where, chunking.seed, show
        ).to_dict()

    found = _with_random(run, model, random, chunking)
    if as_json:
        print_json(found)
        return
    typer.echo(f"{len(documents)} facts, filler {texts[0].title}, encoder {model.name}")
    controls = [
        row | {"pooling": f"random: {row['pooling']}"} for row in found.get("random_weights", [])
    ]
    for row in [*found["rows"], *controls]:
        typer.echo(f"{row['pooling']}")
        for i, count in enumerate(row["added"]):
            low, high = _shown(row["low"][i]), _shown(row["high"][i])
            typer.echo(
                f"{count:>8,} tokens added  cosine {_shown(row['mean'][i])} ({low} to {high})  "
                f"mean rank {_shown(row['mean_rank'][i])}  first {_shown(row['recall@1'][i])}"
            )


def _needles(wanted: str, seed: int) -> Any:
    """Returns the needles of a file, or so many bundled ones."""
    from lmk_viz.probes.needles import draw_needles, load_needles

    if wanted.removeprefix("-").isdecimal():
        return draw_needles(load_needles(), int(wanted), seed)
    return load_needles(wanted)


def _fillers(files: Sequence[str] | None, count: int) -> Any:
    from lmk_viz.documents import read_document
    from lmk_viz.probes.needles import bundled_fillers

    return tuple(map(read_document, files)) if files else bundled_fillers(count)


def _unrelated(file: str | None, text: str) -> Any:
    """Returns the text of the control: a file's, or a bundled one that is not the document."""
    from lmk_viz.documents import read_document
    from lmk_viz.probes.needles import bundled_fillers

    if file is not None:
        return read_document(file)
    return next(sample for sample in bundled_fillers(2) if sample.text != text)


def _with_random(
    run: Callable[[Any], dict[str, Any]], model: Any, random: bool, chunking: ChunkingConfig
) -> dict[str, Any]:
    """Returns a run's numbers and, if asked for, the rows of the same on random weights."""
    found = run(model)
    if random:
        found["random_weights"] = run(model.with_random_weights(chunking.seed))["rows"]
    return found


def _print_needle_rows(found: Mapping[str, Any], encoder: str) -> None:
    typer.echo(
        f"{found['needles']} needles, {len(found['fillers'])} fillers, {found['tokens']:,} tokens, "
        f"{found['chunking']}, encoder {encoder}"
    )
    depths = found["rows"][0]["depths"]
    typer.echo(f"{'depth':<20}" + " ".join(f"{depth:6.2f}" for depth in depths))
    for row in found["rows"]:
        typer.echo(f"{row['pooling']:<20}" + " ".join(f"{v:6.3f}" for v in row["mean"]))
        typer.echo(f"{'  first':<20}" + " ".join(f"{v:6.3f}" for v in row["recall@1"]))
        typer.echo(f"{'':<20}{_scalars(row)}")


def _scalars(
    row: Mapping[str, Any], names: Sequence[str] = ("psi", "slope", "first_minus_last")
) -> str:
    return "  ".join(f"{name} {_ranged(row, name)}" for name in names)


def _ranged(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{_shown(row[name])} ({_shown(low)} to {_shown(high)})"


def _shown(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"
