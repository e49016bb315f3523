"""A task that a tiny encoder learns in a second."""

import numpy as np

from lmk_viz.training.data import Pairs

TOPICS = ("river", "landmark", "token", "document", "vector", "question", "rain", "hill")
FILLERS = ("a", "the", "of", "is", "to", "it", "and", "every", "all", "back")


def toy_pairs(count: int = 64, seed: int = 0) -> Pairs:
    """Queries of one word whose document repeats another word among filler."""
    rng = np.random.default_rng(seed)
    anchors, positives = [], []
    for row in range(count):
        topic = row % len(TOPICS)
        answer = TOPICS[(topic + 3) % len(TOPICS)]
        filler = list(rng.choice(FILLERS, size=4))
        for place in rng.integers(5, size=6):
            filler.insert(int(place), answer)
        anchors.append(TOPICS[topic])
        positives.append(" ".join(filler))
    return Pairs(tuple(anchors), tuple(positives), tuple(() for _ in anchors))
