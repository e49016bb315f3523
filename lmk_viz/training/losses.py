"""Losses over unit vectors: contrastive, distilled from scores, distilled from vectors."""

import torch
from torch.nn import functional

__all__ = ["cosine_distillation", "group_softmax", "in_batch_accuracy", "info_nce"]


def info_nce(
    anchors: torch.Tensor,
    passages: torch.Tensor,
    targets: torch.Tensor,
    temperature: float,
) -> torch.Tensor:
    """Returns the mean cross entropy of finding each anchor's passage among all passages.

    Args:
        anchors: unit vectors, shape (B, D).
        passages: unit vectors, shape (P, D): the positives of the batch and any negatives.
        targets: row of `passages` that answers each anchor, shape (B,).
        temperature: cosines are divided by it; over 0.

    Returns:
        A scalar, 0 at best.

    Example:
        Two orthogonal pairs at temperature 1: log(1 + exp(-1)).

        >>> vectors = torch.eye(2)
        >>> round(float(info_nce(vectors, vectors, torch.arange(2), 1.0)), 6)
        0.313262

    References:
        van den Oord et al., arXiv 1807.03748; in-batch negatives as in arXiv 2004.04906.
    """
    return functional.cross_entropy(anchors @ passages.T / temperature, targets)


def in_batch_accuracy(
    anchors: torch.Tensor, passages: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Returns the share of anchors whose own passage is the closest, a scalar in [0, 1]."""
    return (anchors @ passages.T).argmax(dim=1).eq(targets).float().mean()


def group_softmax(
    anchors: torch.Tensor,
    passages: torch.Tensor,
    groups: torch.Tensor,
    teacher_scores: torch.Tensor,
    temperature: float,
) -> torch.Tensor:
    """Returns the distillation loss of the authors' code, averaged over anchors.

    Each anchor has a group of G passages with teacher scores, t = softmax(scores). The loss is
    the sum over k of t_k times the cross entropy of passage k among all passages of the batch,
    where members 1..k-1 of the anchor's own group are left out. With one member at weight 1 it
    is `info_nce`.

    Args:
        anchors: unit vectors, shape (B, D).
        passages: unit vectors of all groups, shape (P, D).
        groups: rows of `passages` that form each anchor's group, shape (B, G).
        teacher_scores: of each member, any scale, shape (B, G).
        temperature: the student's cosines are divided by it; over 0.
    """
    scores = anchors @ passages.T / temperature
    weights = torch.softmax(teacher_scores.float(), dim=1)
    total = scores.new_zeros(())
    for member in range(groups.shape[1]):
        target = groups[:, member]
        each = functional.cross_entropy(scores, target, reduction="none")
        total = total + (weights[:, member] * each).mean()
        scores = scores.scatter(1, target.unsqueeze(1), float("-inf"))
    return total


def cosine_distillation(embeddings: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Returns the mean of 1 - cosine between vectors and a teacher's, a scalar in [0, 2].

    Args:
        embeddings: shape (B, D).
        teacher: shape (B, D), of the same width.

    Raises:
        ValueError: when the shapes differ.
    """
    if embeddings.shape != teacher.shape:
        raise ValueError(
            f"embeddings {tuple(embeddings.shape)} and teacher vectors {tuple(teacher.shape)} "
            "differ in shape; distil from a teacher of the same width, or by scores."
        )
    return (1 - functional.cosine_similarity(embeddings, teacher.float(), dim=1)).mean()
