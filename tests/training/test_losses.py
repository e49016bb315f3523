import math

import pytest
import torch
from torch.nn import functional

from lmk_viz.training.losses import cosine_distillation, group_softmax, in_batch_accuracy, info_nce


def unit(*rows: tuple[float, ...]) -> torch.Tensor:
    return functional.normalize(torch.tensor(rows, dtype=torch.float64), dim=1)


def test_info_nce_of_two_pairs_is_the_number_worked_out_by_hand():
    # Cosines: the first query 0.6 and 0.8 to the passages, the second 0.8 and -0.6.
    anchors = unit((1.0, 0.0), (0.0, 1.0))
    passages = unit((0.6, 0.8), (0.8, -0.6))
    first = math.log(math.exp(0.6 / 0.5) + math.exp(0.8 / 0.5)) - 0.6 / 0.5
    second = math.log(math.exp(0.8 / 0.5) + math.exp(-0.6 / 0.5)) + 0.6 / 0.5
    loss = info_nce(anchors, passages, torch.tensor([0, 1]), 0.5)
    assert float(loss) == pytest.approx((first + second) / 2)


def test_more_passages_make_info_nce_larger_by_what_they_take_from_the_softmax():
    anchors, passages = unit((1.0, 0.0)), unit((1.0, 0.0), (0.0, 1.0), (0.0, -1.0))
    loss = info_nce(anchors, passages, torch.tensor([0]), 1.0)
    assert float(loss) == pytest.approx(math.log(math.e + 2) - 1)


def test_accuracy_counts_the_queries_whose_own_passage_is_closest():
    anchors = unit((1.0, 0.0), (0.0, 1.0))
    passages = unit((1.0, 0.1), (1.0, 0.0))
    assert float(in_batch_accuracy(anchors, passages, torch.tensor([0, 1]))) == 0.0
    assert float(in_batch_accuracy(anchors, passages, torch.tensor([1, 0]))) == 1.0


def slow_group_softmax(scores, groups, teacher, i):
    """The sum over members, in plain arithmetic."""
    weights = [math.exp(t) for t in teacher]
    weights = [w / sum(weights) for w in weights]
    total, left_out = 0.0, set()
    for weight, member in zip(weights, groups, strict=True):
        rest = [math.exp(s) for row, s in enumerate(scores) if row not in left_out]
        total += weight * (math.log(sum(rest)) - scores[member])
        left_out.add(member)
    return total


def test_group_softmax_equals_its_sum_in_plain_arithmetic():
    generator = torch.Generator().manual_seed(0)
    anchors = functional.normalize(torch.randn(3, 4, generator=generator).double(), dim=1)
    passages = functional.normalize(torch.randn(7, 4, generator=generator).double(), dim=1)
    groups = torch.tensor([[0, 3, 4], [1, 5, 2], [2, 6, 0]])
    teacher = torch.randn(3, 3, generator=generator).double()
    scores = (anchors @ passages.T / 0.3).tolist()
    expected = sum(
        slow_group_softmax(scores[i], groups[i].tolist(), teacher[i].float().tolist(), i)
        for i in range(3)
    )
    loss = group_softmax(anchors, passages, groups, teacher, 0.3)
    assert float(loss) == pytest.approx(expected / 3, rel=1e-6)


def test_group_softmax_with_a_certain_teacher_is_info_nce():
    # The authors' stand-in where there are no scores: 100 for the positive, -100 else.
    generator = torch.Generator().manual_seed(1)
    anchors = functional.normalize(torch.randn(2, 4, generator=generator), dim=1)
    passages = functional.normalize(torch.randn(4, 4, generator=generator), dim=1)
    groups = torch.tensor([[0, 2], [1, 3]])
    teacher = torch.tensor([[100.0, -100.0]] * 2)
    torch.testing.assert_close(
        group_softmax(anchors, passages, groups, teacher, 0.02),
        info_nce(anchors, passages, torch.tensor([0, 1]), 0.02),
    )


@pytest.mark.parametrize(
    ("teacher", "expected"),
    [((2.0, 0.0), 0.0), ((0.0, 5.0), 1.0), ((-1.0, 0.0), 2.0), ((1.0, 1.0), 1 - math.sqrt(0.5))],
    ids=["same", "orthogonal", "opposite", "half-way"],
)
def test_cosine_distillation_is_one_less_the_cosine(teacher, expected):
    loss = cosine_distillation(torch.tensor([[3.0, 0.0]]), torch.tensor([teacher]))
    assert float(loss) == pytest.approx(expected, abs=1e-6)


def test_cosine_distillation_refuses_a_teacher_of_another_width():
    with pytest.raises(ValueError, match=r"\(1, 2\) and teacher vectors \(1, 3\) differ"):
        cosine_distillation(torch.zeros(1, 2), torch.zeros(1, 3))


def test_losses_have_gradients_that_pull_pairs_together():
    anchors = unit((1.0, 0.2), (0.2, 1.0)).requires_grad_()
    passages = unit((0.9, 0.4), (0.4, 0.9))
    info_nce(anchors, passages, torch.tensor([0, 1]), 0.1).backward()
    moved = anchors.detach() - 1e-3 * anchors.grad
    before = info_nce(anchors.detach(), passages, torch.tensor([0, 1]), 0.1)
    assert float(info_nce(moved, passages, torch.tensor([0, 1]), 0.1)) < float(before)
