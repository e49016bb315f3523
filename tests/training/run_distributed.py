"""Started by a test in two processes: the toy task with half the batch each."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402 - after the path.
from training.toy import toy_pairs  # noqa: E402

from lmk_viz.encoder import Encoder  # noqa: E402
from lmk_viz.training.config import TrainingConfig  # noqa: E402
from lmk_viz.training.trainer import train  # noqa: E402


def main() -> None:
    torch.set_num_threads(1)
    train(
        Encoder.from_pretrained(sys.argv[1]),
        toy_pairs(),
        TrainingConfig(
            steps=3,
            batch_size=4,
            query_length=16,
            passage_length=64,
            granularities=(4,),
            learning_rate=5e-3,
            temperature=0.1,
            shuffle=False,
            save_every=1,
        ),
        sys.argv[2],
    )


if __name__ == "__main__":
    main()
