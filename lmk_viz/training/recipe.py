"""How the bundled family is made, from top to bottom.

    python -m lmk_viz recipe --corpus CORPUS --work WORK

runs the steps below in order, each from where it stopped, none longer than 45 minutes on two
cores. `--step` runs one of them alone, so that several machines or cores can share the work.

1. `pairs`     queries and documents cut from the passages, with the teacher's vectors of both
2. `backbone`  all-MiniLM-L6-v2 with rotary positions, healed by distilling its own vectors
3. `cls`, `mean`, `landmark`, `every_k`, `latent_attention`
               a variant a pooling: adapters on the backbone, same pairs, order, steps and seed
4. `assemble`  backbone and adapters in half precision, in the folder that the package carries

With `--evidence start` the pairs of step 3 have the query's passage at the start of every
document, for a comparison of what data and what pooling do to a vector's bias. Give such a run a
work folder of its own and copy `backbone` into it, so that both families share one.
"""

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from transformers import AutoModel, AutoTokenizer

from lmk_viz.attention import ATTENTION_NAME
from lmk_viz.config import EncoderConfig, PoolingMode
from lmk_viz.encoder import Encoder
from lmk_viz.loading import bundled_folder
from lmk_viz.training.backbone import convert_backbone
from lmk_viz.training.checkpoint import write_settings
from lmk_viz.training.config import TrainingConfig
from lmk_viz.training.data import load_pairs, read_rows, save_pairs
from lmk_viz.training.export import save_adapter
from lmk_viz.training.passages import (
    Passage,
    PassageSettings,
    TokenCounter,
    cut_pairs,
    load_passages,
)
from lmk_viz.training.prepare import pairs_of, with_teacher
from lmk_viz.training.trainer import Step, train

__all__ = ["STEPS", "VARIANTS", "run_step"]

VARIANTS = (
    PoolingMode.CLS,
    PoolingMode.MEAN,
    PoolingMode.LANDMARK,
    PoolingMode.EVERY_K,
    PoolingMode.LATENT_ATTENTION,
)
STEPS = ("pairs", "backbone", *(mode.value for mode in VARIANTS), "assemble")

PASSAGE_LENGTH = 256
"""Longest training text in tokens, specials and landmarks included: the length called 1×."""
HEALING = TrainingConfig(
    pooling=PoolingMode.MEAN,
    steps=300,
    passage_length=PASSAGE_LENGTH,
    learning_rate=4e-4,
    contrastive=0.0,
    frozen=("embeddings.word_embeddings",),
    precision="bfloat16",
    shuffle=False,
)
HEALING_PAIRS = PassageSettings(lengths=(48, 96, 160, 224))
VARIANT = TrainingConfig(
    steps=300,
    passage_length=PASSAGE_LENGTH,
    learning_rate=1e-3,
    lora_rank=16,
    precision="bfloat16",
    shuffle=False,
)
VARIANT_PAIRS = PassageSettings(lengths=(96, 160, 224))
HELD_OUT_SHARE = 8
"""Of the Wikipedia articles one in eight is kept for evaluation, and one for choosing settings."""
SEED = 0
EVIDENCE_NOTE = "evidence.txt"
_DATA_NOTE = "passages of the corpus, cut by lmk_viz.training.recipe"


def split_of(doc: str) -> str:
    """Returns `test`, `dev` or `train` for a document of the corpus.

    Example:
        >>> split_of("moby-dick/1")
        'train'
    """
    if not doc.startswith("wikipedia/"):
        return "train"
    place = int(hashlib.sha256(doc.encode()).hexdigest(), 16) % HELD_OUT_SHARE
    return {0: "test", 1: "dev"}.get(place, "train")


def load_corpus_passages(corpus: Path) -> tuple[Passage, ...]:
    """Returns the passages of the corpus that may be trained on, in file order.

    Raises:
        ValueError: when the folder holds no passage files.
    """
    files = sorted(corpus.glob("*.jsonl.gz"))
    if not files:
        raise ValueError(f"{str(corpus)!r} holds no *.jsonl.gz; give the folder of the corpus.")
    passages = load_passages(row for file in files for row in read_rows(file))
    return tuple(passage for passage in passages if split_of(passage.doc) == "train")


def run_step(
    step: str,
    corpus: Path,
    work: Path,
    output: Path,
    report: Callable[[str], None] = lambda _: None,
    evidence: str = "anywhere",
) -> None:
    """Runs one step, going on from where it stopped; a finished step is not run again.

    Args:
        step: one of `STEPS`.
        corpus: folder of passage files.
        work: folder for pairs, runs and checkpoints.
        output: folder that `assemble` writes.
        report: called with a line about what is happening.
        evidence: where the query's passage stands in the pairs: `anywhere` or `start`.

    Raises:
        ValueError: when the step is unknown, one before it is missing, or the pairs that are
            there have their evidence elsewhere.
    """
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"work folder {str(work)!r} cannot be made: {error.strerror}.") from error
    _check_evidence(work, evidence)
    if step == "pairs":
        _make_pairs(corpus, work, report, evidence)
    elif step == "backbone":
        _heal_backbone(work, report)
    elif step == "assemble":
        _assemble(work, output)
    elif step in STEPS:
        _train_variant(PoolingMode(step), work, report)
    else:
        raise ValueError(f"step is {step!r}; allowed: {', '.join(STEPS)}.")


def _teacher() -> Encoder:
    # Half the time in bfloat16; cosines change by about 1e-3.
    return Encoder.from_pretrained(
        EncoderConfig("all-minilm-l6-v2", device="cpu", dtype="bfloat16")
    )


def _check_evidence(work: Path, evidence: str) -> None:
    """Notes where the evidence of a folder's pairs stands, and raises when it is elsewhere."""
    settings = replace(VARIANT_PAIRS, evidence=evidence)
    there = _evidence_of(work)
    if (work / "pairs.parquet").exists() and there != settings.evidence:
        raise ValueError(
            f"evidence is {evidence!r}, and {str(work)!r} holds pairs with evidence {there!r}; "
            "give another work folder."
        )
    (work / EVIDENCE_NOTE).write_text(evidence, encoding="utf-8")


def _evidence_of(work: Path) -> str:
    note = work / EVIDENCE_NOTE
    return note.read_text(encoding="utf-8").strip() if note.exists() else VARIANT_PAIRS.evidence


def _make_pairs(
    corpus: Path, work: Path, report: Callable[[str], None], evidence: str = "anywhere"
) -> None:
    passages = load_corpus_passages(corpus)
    report(f"{len(passages)} passages to train on")
    teacher = _teacher()
    count = TokenCounter(lambda text: len(teacher.tokenize(text)))
    for name, config, settings, seed in (
        ("healing", HEALING, HEALING_PAIRS, SEED),
        ("pairs", VARIANT, replace(VARIANT_PAIRS, evidence=evidence), SEED + 1),
    ):
        file = work / f"{name}.parquet"
        is_healed = (work / "backbone" / "model.safetensors").exists()
        if file.exists() or (name == "healing" and is_healed):
            continue
        cut = cut_pairs(
            passages, config.steps * config.batch_size, config.batch_size, count, settings, seed
        )
        parts = [pair.parts for pair in cut]
        save_pairs(with_teacher(pairs_of(cut), teacher, parts, report), file)
        report(f"wrote {file.name}: {len(cut)} pairs")


def _heal_backbone(work: Path, report: Callable[[str], None]) -> None:
    folder = work / "backbone"
    if (folder / "model.safetensors").exists():
        return
    original = bundled_folder()
    tokenizer = AutoTokenizer.from_pretrained(original)
    model = convert_backbone(AutoModel.from_pretrained(original))
    model.set_attn_implementation(ATTENTION_NAME)
    trained = train(
        Encoder(model.requires_grad_(False), tokenizer, name="rotary MiniLM"),
        load_pairs(work / "healing.parquet"),
        HEALING,
        work / "healing",
        on_step=_report_step("backbone", report),
    )
    # Rounded here, so that adapters are trained on the weights that are passed on.
    trained.model.model.half().save_pretrained(folder)
    tokenizer.model_max_length = model.config.max_position_embeddings
    tokenizer.save_pretrained(folder)


def _train_variant(mode: PoolingMode, work: Path, report: Callable[[str], None]) -> None:
    folder = work / mode.value
    if (folder / "adapter" / "adapter_model.safetensors").exists():
        return
    encoder = Encoder.from_pretrained(EncoderConfig(str(work / "backbone"), device="cpu"))
    config = VARIANT.with_(pooling=mode)
    trained = train(
        encoder,
        load_pairs(work / "pairs.parquet"),
        config,
        folder,
        on_step=_report_step(mode.value, report),
    )
    data = _DATA_NOTE
    if _evidence_of(work) != VARIANT_PAIRS.evidence:
        data += f", evidence at the {_evidence_of(work)}"
    save_adapter(trained, config, folder / "adapter", "../..", data=data)


def _assemble(work: Path, output: Path) -> None:
    backbone = work / "backbone"
    if not (backbone / "model.safetensors").exists():
        raise ValueError(f"{str(work)!r} has no backbone yet; run the step `backbone` first.")
    output.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(backbone / name, output / name)
    # Healed by distilling a mean pooling, which it is therefore trained for.
    write_settings(output, PoolingMode.MEAN, PASSAGE_LENGTH, ())
    for mode in VARIANTS:
        adapter = work / mode.value / "adapter"
        if not adapter.exists():
            raise ValueError(f"{str(work)!r} has no {mode.value} yet; run that step first.")
        target = output / "variants" / mode.value
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(adapter, target)


def _report_step(name: str, report: Callable[[str], None]) -> Callable[[Step], None]:
    def show(step: Step) -> None:
        if step.step % 10 == 0 or step.step == step.steps:
            report(
                f"{name} {step.step}/{step.steps}: loss {step.loss:.3f}, contrastive "
                f"{step.contrastive:.3f}, distillation {step.distillation:.3f}, accuracy "
                f"{step.accuracy:.2f}, {step.tokens_per_second:,.0f} tokens/s, "
                f"{step.seconds_left / 60:.0f} min left"
            )

    return show
