"""Verbs that make encoders: train, recipe, merge."""

from pathlib import Path
from typing import Annotated, Any

import typer

from lmk_viz.cli.options import (
    DeviceOption,
    EncoderOption,
    JsonOption,
    load_encoder,
    print_json,
    whole_numbers,
)
from lmk_viz.config import PoolingMode
from lmk_viz.presets import DEFAULT_NAME
from lmk_viz.training.config import TrainingConfig

__all__ = ["app"]

app = typer.Typer()

PLAIN = TrainingConfig()


@app.command()
def train(
    data: Annotated[
        str, typer.Option("--data", help="Pairs or passages: .jsonl, .jsonl.gz or .parquet.")
    ],
    output: Annotated[str, typer.Option("--output", help="Folder to write the encoder to.")],
    encoder: EncoderOption = DEFAULT_NAME,
    pooling: Annotated[
        PoolingMode, typer.Option("--pooling", help="What it is trained for.")
    ] = PLAIN.pooling,
    teacher: Annotated[
        str | None, typer.Option("--teacher", help="Encoder to distil from; default none.")
    ] = None,
    steps: Annotated[int, typer.Option("--steps")] = PLAIN.steps,
    batch_size: Annotated[int, typer.Option("--batch-size", help="Pairs a step and process.")] = (
        PLAIN.batch_size
    ),
    accumulation: Annotated[
        int, typer.Option("--accumulation", help="Micro-batches a step.")
    ] = PLAIN.accumulation,
    query_length: Annotated[int, typer.Option("--query-length", help="In tokens.")] = (
        PLAIN.query_length
    ),
    passage_length: Annotated[int, typer.Option("--passage-length", help="In tokens.")] = (
        PLAIN.passage_length
    ),
    granularities: Annotated[
        str, typer.Option("--granularities", help="Drawn from for every text.")
    ] = ",".join(map(str, PLAIN.granularities)),
    learning_rate: Annotated[float, typer.Option("--learning-rate")] = 2e-4,
    warm_up: Annotated[float, typer.Option("--warm-up", help="Share of the steps.")] = (
        PLAIN.warm_up
    ),
    weight_decay: Annotated[float, typer.Option("--weight-decay")] = PLAIN.weight_decay,
    temperature: Annotated[float, typer.Option("--temperature")] = PLAIN.temperature,
    contrastive: Annotated[float, typer.Option("--contrastive", help="Weight of the loss.")] = (
        PLAIN.contrastive
    ),
    distillation: Annotated[float, typer.Option("--distillation", help="Weight of the loss.")] = (
        PLAIN.distillation
    ),
    lora_rank: Annotated[
        int, typer.Option("--lora-rank", help="Train adapters of this rank; 0 trains all weights.")
    ] = PLAIN.lora_rank,
    precision: Annotated[str, typer.Option("--precision", help="auto, float32, bfloat16")] = (
        PLAIN.precision
    ),
    shuffle: Annotated[bool, typer.Option("--shuffle/--no-shuffle")] = PLAIN.shuffle,
    save_every: Annotated[int, typer.Option("--save-every", help="Steps.")] = PLAIN.save_every,
    seed: Annotated[int, typer.Option("--seed")] = PLAIN.seed,
    device: DeviceOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Train an encoder for a pooling, on pairs or on plain passages.

    Pairs have the columns anchor (or query), positive (or passage), and, where given, negatives,
    scores, anchor_vector, positive_vector. Passages have text and, where given, title, doc and
    source; a sentence of each is its query. Run again it goes on where it stopped.
    """
    from lmk_viz.training.export import save_encoder
    from lmk_viz.training.prepare import load_training_data
    from lmk_viz.training.trainer import train as run_training

    sizes = whole_numbers("--granularities", granularities, "such as 8,16,32")
    config = TrainingConfig(
        pooling=pooling,
        steps=steps,
        batch_size=batch_size,
        accumulation=accumulation,
        query_length=query_length,
        passage_length=passage_length,
        granularities=sizes,
        learning_rate=learning_rate,
        warm_up=warm_up,
        weight_decay=weight_decay,
        temperature=temperature,
        contrastive=contrastive,
        distillation=distillation,
        lora_rank=lora_rank,
        precision=precision,
        shuffle=shuffle,
        save_every=save_every,
        seed=seed,
    )
    folder = Path(output)
    model = load_encoder(encoder, device)
    pairs = load_training_data(
        data, model, config, None if teacher is None else load_encoder(teacher, device), _say
    )
    run = run_training(model, pairs, config, folder, on_step=_report)
    save_encoder(
        run, model, config, folder, started_from=encoder, teacher=teacher, data=Path(data).name
    )
    summary: dict[str, Any] = {
        "output": str(folder),
        "encoder": encoder,
        "trained_for": config.pooling.value,
        "pairs": len(pairs),
        "steps": config.steps,
        "tokens": run.tokens,
        "seconds": run.seconds,
    }
    if as_json:
        print_json(summary)
    else:
        typer.echo(
            f"{config.steps} steps on {len(pairs):,} pairs in {run.seconds:.0f} s; "
            f"written to {folder}, to be used as --encoder {folder}"
        )


@app.command()
def recipe(
    corpus: Annotated[str, typer.Option("--corpus", help="Folder of passage files (*.jsonl.gz).")],
    work: Annotated[str, typer.Option("--work", help="Folder for pairs, runs and checkpoints.")],
    output: Annotated[
        str | None, typer.Option("--output", help="Folder for the family; else WORK/lmk-mini.")
    ] = None,
    step: Annotated[
        str | None, typer.Option("--step", help="Run this step alone; else all in order.")
    ] = None,
    evidence: Annotated[
        str,
        typer.Option("--evidence", help="Where the answer stands in the pairs: anywhere, start."),
    ] = "anywhere",
) -> None:
    """Make the bundled family lmk-mini again, step by step, each from where it stopped.

    --evidence start makes variants that learned from answers at the start of their documents;
    beside the others they tell what data does to a bias from what pooling does.
    """
    from lmk_viz.training.recipe import STEPS, run_step

    target = Path(output) if output else Path(work) / "lmk-mini"
    for name in [step] if step else STEPS:
        _say(f"step {name}")
        run_step(name, Path(corpus), Path(work), target, _say, evidence)


@app.command()
def merge(
    encoder: Annotated[str, typer.Argument(help="A trained variant, such as lmk-mini-landmark.")],
    output: Annotated[str, typer.Option("--output", help="Folder to write the encoder to.")],
    device: DeviceOption = "auto",
) -> None:
    """Write a variant as a folder of its own, that plain transformers loads without adapters."""
    from lmk_viz.training.export import save_merged

    save_merged(load_encoder(encoder, device), Path(output))
    typer.echo(f"{encoder} written to {output}", err=True)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _report(step: Any) -> None:
    """Writes a line every tenth step, and for the last."""
    if step.step % 10 == 0 or step.step in (1, step.steps):
        _say(
            f"step {step.step}/{step.steps}: loss {step.loss:.4f}, accuracy {step.accuracy:.2f}, "
            f"{step.tokens_per_second:,.0f} tokens/s, {step.seconds_left / 60:.1f} min left"
        )
