import numpy as np
import pytest

from lmk_viz.config import PoolingMode
from lmk_viz.figures.evaluation import (
    chunks_alt,
    chunks_figure,
    cost_alt,
    cost_figure,
    groups_alt,
    groups_figure,
    scores_alt,
    scores_figure,
    system_name,
)
from lmk_viz.figures.theme import STYLES
from lmk_viz.retrieval.chunk_vectors import ChunkCosines, MultiVector


def scores(value):
    return {"ndcg@10": value, "ndcg@10_low": value - 0.1, "ndcg@10_high": value + 0.05}


def row(pooling, value, vectors=10, trained=True):
    return {
        "pooling": pooling,
        "trained": trained,
        **scores(value),
        "by_depth": [
            {"group": "start", "queries": 4, **scores(value)},
            {"group": "<b>end</b>", "queries": 2, **scores(value - 0.2)},
        ],
        "index": {"vectors": vectors, "bytes": vectors * 2**20},
    }


ROWS = [row("cls", 0.5, trained=False), row("landmark", 0.7), row("max_sim", 0.8, 80)]
COSINES = [
    ChunkCosines(MultiVector.MAX_SIM, ((0, 10), (11, 20), (21, 30)), np.asarray([0.1, 0.7, 0.2])),
    ChunkCosines(MultiVector.PASSAGES, ((0, 10), (31, 40)), np.asarray([0.6, 0.5])),
]


def test_every_system_has_a_name_that_says_what_was_not_trained():
    assert system_name("cls", False) == "CLS (not trained for it)"
    assert system_name("bm25", None) == "BM25"
    names = [system_name(name) for name in (*PoolingMode, *MultiVector)]
    assert len(set(names)) == len(names)


def test_scores_are_points_in_order_with_their_own_intervals():
    figure = scores_figure([*ROWS, row("bm25", 0.6, trained=None)], "ndcg@10", "t", "<i>mine</i>")
    assert [trace.x[0] for trace in figure.data] == [0.5, 0.7, 0.8, 0.6]
    names = [trace.y[0] for trace in figure.data]
    assert names[0] == "CLS (not trained for it)"
    # The first stands on top, and Plotly counts from below.
    assert list(figure.layout.yaxis.categoryarray) == names[::-1]
    error = figure.data[1].error_x
    assert (error.array[0], error.arrayminus[0]) == pytest.approx((0.05, 0.1))
    assert figure.data[1].marker.color == STYLES[PoolingMode.LANDMARK].colour
    assert "<i>" not in figure.layout.title.subtitle.text
    assert "Landmark (LMK) 0.700 (0.600 to 0.750)" in scores_alt(ROWS, "ndcg@10")


def test_groups_are_lines_whose_names_come_escaped_from_the_data():
    figure = groups_figure(ROWS, "by_depth", "ndcg@10", "t")
    assert [trace.name for trace in figure.data][1:] == ["Landmark (LMK)", "Max-sim over landmarks"]
    assert list(figure.data[1].x) == ["start (4)", "&lt;b&gt;end&lt;/b&gt; (2)"]
    assert list(figure.data[1].y) == pytest.approx([0.7, 0.5])
    assert "start (4) 0.700 (0.600 to 0.750)" in groups_alt(ROWS, "by_depth", "ndcg@10")


def test_costs_lie_over_the_vectors_of_a_document():
    figure = cost_figure(ROWS, "ndcg@10", documents=10)
    assert [trace.x[0] for trace in figure.data] == [1, 1, 8]
    assert [trace.y[0] for trace in figure.data] == [0.5, 0.7, 0.8]
    assert figure.layout.xaxis.type == "log"
    told = cost_alt(ROWS, "ndcg@10")
    assert "Max-sim over landmarks 0.800 (0.700 to 0.850) with 80 vectors, 80.00 MiB" in told


def test_chunks_lie_where_they_stand_and_the_highest_is_marked():
    figure = chunks_figure(COSINES, 50, depth=0.5, kept=30)
    bars = next(trace for trace in figure.data if trace.name == "Max-sim over landmarks")
    assert list(bars.x)[:2] == [0, 10]
    assert list(bars.y)[3:5] == [0.7, 0.7]
    marks = [trace for trace in figure.data if "answers" in trace.name]
    assert [(trace.x[0], trace.y[0]) for trace in marks] == [(15.5, 0.7), (5.0, 0.6)]
    line, cut = figure.layout.shapes
    assert line.x0 == 25
    assert (cut.x0, cut.x1) == (30, 50)
    told = chunks_alt(COSINES, 50, 0.5)
    assert "Max-sim over landmarks: chunk 2 of 3 with cosine 0.700, at 31% of the document" in told
    assert "The evidence stands at 50%." in told


def test_without_a_known_depth_or_a_cut_nothing_is_marked():
    figure = chunks_figure(COSINES[:1], 30, depth=None, kept=30)
    assert not figure.layout.shapes
    assert "evidence" not in chunks_alt(COSINES[:1], 30, None)
