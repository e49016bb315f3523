"""The training loop: one process or many, resumed exactly where it stopped."""

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lmk_viz.config import digest
from lmk_viz.encoder import Encoder
from lmk_viz.training.checkpoint import RunState, load_state, save_state
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.data import Pairs
from lmk_viz.training.losses import cosine_distillation, group_softmax, in_batch_accuracy, info_nce
from lmk_viz.training.model import Inputs, TrainedEncoder, build_inputs, uses_bfloat16

__all__ = ["Step", "Trained", "batch_rows", "train"]

LOG_NAME = "log.jsonl"


@dataclass(frozen=True, slots=True)
class Step:
    """What one step did, as the log has it."""

    step: int
    """From 1."""
    steps: int
    loss: float
    contrastive: float
    distillation: float
    accuracy: float
    """Share of queries whose own passage came first in the batch."""
    learning_rate: float
    tokens: int
    """Read by this step over all processes, padding left out."""
    tokens_per_second: float
    seconds: float
    """Since the run began, over all sittings."""
    seconds_left: float

    def to_dict(self) -> dict[str, Any]:
        """Returns plain JSON types."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """The end of a run."""

    model: TrainedEncoder
    """Unwrapped, in evaluation mode."""
    seconds: float
    tokens: int


def batch_rows(
    config: TrainingConfig, n_pairs: int, step: int, processes: int
) -> NDArray[np.int64]:
    """Returns the pairs of a step, shape (processes, accumulation, micro-batch).

    A function of seed and step alone, so that a resumed run sees what it would have seen.

    Raises:
        ValueError: when there are fewer pairs than a step takes.
    """
    take = config.batch_size * processes
    per_epoch = n_pairs // take
    if not per_epoch:
        raise ValueError(
            f"there are {n_pairs} pairs and a step takes {take}; lower batch_size or give more."
        )
    epoch, place = divmod(step, per_epoch)
    order = (
        np.random.default_rng([config.seed, epoch]).permutation(n_pairs)
        if config.shuffle
        else np.arange(n_pairs)
    )
    rows = order[place * take : (place + 1) * take]
    return rows.reshape(config.accumulation, processes, config.micro_batch).swapaxes(0, 1)


def train(
    encoder: Encoder,
    pairs: Pairs,
    config: TrainingConfig,
    folder: str | Path,
    on_step: Callable[[Step], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Trained:
    """Returns the trained model; the encoder that came stays as it was.

    Checkpoints and a log (`log.jsonl`, a line a step) are kept in the folder. Called again with
    the same arguments it goes on from the last checkpoint, with the same result to the last bit
    on the same machine with the same number of threads.

    Args:
        encoder: where training starts.
        pairs: what it learns from.
        config: how.
        folder: of the run.
        on_step: called after each step, in the main process.
        should_stop: asked after each step; when it says so, a checkpoint is written and
            InterruptedError raised.

    Raises:
        ValueError: when data and settings do not fit, or the loss is not finite.
        InterruptedError: when it was stopped.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    run = _Run(encoder, pairs, config)
    by_name = dict(run.model.trained())
    key = _run_key(encoder, pairs, config, run.processes)
    state = load_state(folder, key, by_name, run.optimizer) or RunState(0, 0.0, 0, key)
    if run.is_main:
        _cut_log(folder / LOG_NAME, state.step)
    started = time.monotonic() - state.seconds
    tokens = state.tokens
    for number in range(state.step, config.steps):
        done = run.step(number, started)
        tokens += done.tokens
        if run.is_main:
            _log(folder / LOG_NAME, done, on_step)
        stop = should_stop is not None and should_stop()
        due = stop or done.step % config.save_every == 0 or done.step == config.steps
        if run.is_main and due:
            saved = RunState(done.step, done.seconds, tokens, key)
            save_state(folder, saved, by_name, run.optimizer)
        if stop:
            raise InterruptedError(f"stopped after step {done.step}; run it again to go on.")
    return Trained(run.model.eval(), time.monotonic() - started, tokens)


class _Run:
    """Model, optimizer and processes of a run."""

    def __init__(self, encoder: Encoder, pairs: Pairs, config: TrainingConfig) -> None:
        from accelerate import Accelerator

        if config.distillation and not config.contrastive and not pairs.has_vectors:
            raise ValueError("there is nothing to distil from: the pairs have no teacher vectors.")
        self.encoder, self.pairs, self.config = encoder, pairs, config
        self.accelerator = Accelerator(
            cpu=encoder.device.type == "cpu",
            mixed_precision="bf16" if uses_bfloat16(config, encoder.device) else "no",
        )
        torch.manual_seed(config.seed)
        self.model = TrainedEncoder(encoder, config)
        self.weights = [weight for _, weight in self.model.trained()]
        self.optimizer = torch.optim.AdamW(
            self.weights, lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.wrapped = self.accelerator.prepare_model(self.model)

    @property
    def processes(self) -> int:
        """Processes that train together."""
        return int(self.accelerator.num_processes)

    @property
    def is_main(self) -> bool:
        """Whether this process writes checkpoints and the log."""
        return bool(self.accelerator.is_main_process)

    def step(self, number: int, started: float) -> Step:
        """Returns what a step, counted from 0, did to the weights."""
        config = self.config
        began = time.monotonic()
        for group in self.optimizer.param_groups:
            group["lr"] = config.rate(number)
        process = self.accelerator.process_index
        sums = torch.zeros(5)
        rows = batch_rows(config, len(self.pairs), number, self.processes)[process]
        for place, micro in enumerate(rows):
            draw = np.random.default_rng([config.seed, number, place, process])
            # Gradients meet between processes once a step.
            is_last = place == config.accumulation - 1
            with contextlib.nullcontext() if is_last else self.accelerator.no_sync(self.wrapped):
                sums += _accumulate(
                    self.accelerator, self.wrapped, self.encoder, self.pairs, micro, config, draw
                )
        torch.nn.utils.clip_grad_norm_(self.weights, config.clip or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        sums = self.accelerator.reduce(sums.to(self.accelerator.device), "sum").cpu()
        if not torch.isfinite(sums).all():
            raise ValueError(
                f"the loss is not finite at step {number + 1}; lower learning_rate "
                f"({config.learning_rate}) or raise temperature ({config.temperature})."
            )
        means = (sums[:4] / (config.accumulation * self.processes)).tolist()
        tokens, now = int(sums[4]), time.monotonic()
        return Step(
            number + 1,
            config.steps,
            loss=means[0],
            contrastive=means[1],
            distillation=means[2],
            accuracy=means[3],
            learning_rate=config.rate(number),
            tokens=tokens,
            tokens_per_second=tokens / max(now - began, 1e-9),
            seconds=now - started,
            seconds_left=(now - started) / (number + 1) * (config.steps - number - 1),
        )


def _accumulate(
    accelerator: Any,
    model: Any,
    encoder: Encoder,
    pairs: Pairs,
    rows: NDArray[np.int64],
    config: TrainingConfig,
    draw: np.random.Generator,
) -> torch.Tensor:
    """Adds a micro-batch's gradients; returns loss, its two parts, accuracy and tokens."""
    anchors = [pairs.anchors[row] for row in rows]
    positives = [pairs.positives[row] for row in rows]
    negatives = [text for row in rows for text in pairs.negatives[row]]

    def inputs(texts: list[str], max_length: int) -> Inputs:
        sizes = draw.choice(config.granularities, size=len(texts)).tolist()
        made = build_inputs(encoder, texts, config.pooling, sizes, max_length)
        return made.to(accelerator.device)

    queries = inputs(anchors, config.query_length)
    documents = inputs(positives + negatives, config.passage_length)
    query_vectors, document_vectors = model(queries, documents)
    contrastive = query_vectors.new_zeros(())
    accuracy = query_vectors.new_zeros(())
    if config.contrastive:
        everything, targets = _gather(accelerator, document_vectors, len(rows))
        accuracy = in_batch_accuracy(query_vectors, everything, targets)
        if pairs.scores is None:
            contrastive = info_nce(query_vectors, everything, targets, config.temperature)
        else:
            contrastive = group_softmax(
                query_vectors,
                everything,
                _groups(targets, len(rows), pairs.scores.shape[1] - 1),
                torch.from_numpy(pairs.scores[rows]).to(query_vectors.device),
                config.temperature,
            )
    distillation = query_vectors.new_zeros(())
    if config.distillation and pairs.has_vectors:
        assert pairs.anchor_vectors is not None
        assert pairs.positive_vectors is not None
        for vectors, teacher in (
            (query_vectors, pairs.anchor_vectors[rows]),
            (document_vectors[: len(rows)], pairs.positive_vectors[rows]),
        ):
            target = torch.from_numpy(teacher).to(vectors.device)
            distillation = distillation + cosine_distillation(vectors, target)
    loss = config.contrastive * contrastive + config.distillation * distillation
    accelerator.backward(loss / config.accumulation)
    tokens = queries.n_tokens + documents.n_tokens
    parts = (loss.detach(), contrastive.detach(), distillation.detach(), accuracy)
    return torch.tensor([*(float(part) for part in parts), float(tokens)])


def _gather(
    accelerator: Any, documents: torch.Tensor, own: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the documents of all processes, and the rows of this one's positives.

    Gradients flow back to where a document was embedded, so that many processes learn what one
    would have learned from the whole batch.
    """
    first = 0
    everything = documents
    if accelerator.num_processes > 1:
        from torch.distributed.nn.functional import all_gather

        everything = torch.cat(all_gather(documents))  # type: ignore[no-untyped-call]
        first = accelerator.process_index * len(documents)
    return everything, torch.arange(first, first + own, device=documents.device)


def _groups(targets: torch.Tensor, own: int, negatives: int) -> torch.Tensor:
    """Returns the rows of each anchor's positive and negatives, shape (B, 1 + negatives)."""
    first = targets[0] + own
    rows = first + torch.arange(own * negatives, device=targets.device).reshape(own, negatives)
    return torch.cat([targets.unsqueeze(1), rows], dim=1)


def _run_key(encoder: Encoder, pairs: Pairs, config: TrainingConfig, processes: int) -> str:
    """Returns a digest of all that decides the weights, but for what only decides when to save."""
    vectors = [
        None if v is None else (v.shape, float(np.abs(v).sum(dtype=np.float64)))
        for v in (pairs.scores, pairs.anchor_vectors, pairs.positive_vectors)
    ]
    weights = [float(p.detach().double().sum()) for p in encoder.model.parameters()]
    return digest(
        config.with_(save_every=1),
        list(pairs.anchors),
        list(pairs.positives),
        [list(row) for row in pairs.negatives],
        repr(vectors),
        repr(weights),
        processes,
    )


def _log(file: Path, done: Step, on_step: Callable[[Step], None] | None) -> None:
    with file.open("a", encoding="utf-8") as log:
        log.write(json.dumps(done.to_dict()) + "\n")
    if on_step is not None:
        on_step(done)


def _cut_log(file: Path, steps: int) -> None:
    """Drops lines of steps that will be done again."""
    if not file.exists():
        return
    lines = file.read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line and json.loads(line)["step"] <= steps]
    file.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
