import json
from dataclasses import replace

import numpy as np
import pytest
from fakes import BagEncoder

from lmk_viz.config import ChunkingConfig, ChunkingMode, LayoutKind, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.pooling import POOLINGS
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.metrics import bootstrap_interval
from lmk_viz.retrieval.sweep import plan_passes, run_sweep
from lmk_viz.retrieval.sweep_settings import SweepConfig, plan_settings, settings_code

# CLS counts the first two words; the mean holds the CLS state beside all words.
TEXTS = {
    "head": "a b x x x x",
    "tail": "x x x x c d.",
    "other": "x y y y",
    "none": "y y",
}
TOY = RetrievalDataset(
    name="toy",
    split="test",
    queries={"q-start": "a b", "q-end": "c d"},
    corpus=tuple(Document(name, "", text) for name, text in TEXTS.items()),
    qrels={"q-start": {"head": 1}, "q-end": {"tail": 1}},
    depth={},
    bins={},
    with_titles=False,
    notes=("a note",),
)
SMALL = SweepConfig(granularities=(2, 4), reference=2)
NAMES = [
    *("cls", "mean", "landmark:2", "landmark:4", "landmark:variable", "landmark:sentence"),
    *("every_k:2", "multi_cls:2"),
]


def bag(**settings):
    return BagEncoder("abcdxy", reach=2, **settings)


@pytest.fixture(scope="module")
def toy():
    return run_sweep(bag(), TOY, SMALL)


# Rows.


def test_there_is_a_row_for_each_pooling_and_granularity(toy):
    assert [row.name for row in toy.rows] == NAMES
    assert [row.setting.granularity for row in toy.rows] == [
        *(None, None, 2, 4, "variable", "sentence", 2, 2)
    ]
    assert not toy.is_partial


def test_rows_find_what_can_be_worked_out(toy):
    # Of c and d nothing is in any CLS vector: all tie at 0, and "tail" is last of four by id.
    assert toy.row("cls").per_query["recall@1"].tolist() == [1.0, 0.0]
    assert toy.row("cls").per_query["mrr@10"].tolist() == [1.0, 0.25]
    for name in ("mean", "landmark:2", "landmark:4"):
        assert toy.row(name).per_query["recall@1"].tolist() == [1.0, 1.0]


def test_costs_are_counted(toy):
    # 6, 6, 4 and 2 words: 3, 3, 2, 1 landmarks at two words a chunk.
    row = toy.row("landmark:2")
    assert row.landmarks_per_document == 9 / 4
    assert row.overhead == 9 / 18
    # CLS and words and landmarks; without landmarks a SEP at the end.
    assert row.tokens_per_document == (18 + 9 + 4) / 4
    plain = toy.row("mean")
    assert (plain.landmarks_per_document, plain.overhead) == (0.0, 0.0)
    assert plain.tokens_per_document == (18 + 2 * 4) / 4
    # A CLS before each chunk, of which the first stands in plain input too.
    assert toy.row("multi_cls:2").landmarks_per_document == (9 - 4) / 4


@pytest.mark.parametrize("limit", [None, 5], ids=["whole", "cut"])
def test_token_counts_are_those_of_the_layouts(limit):
    encoder = bag()
    found = run_sweep(encoder, TOY, SMALL, max_length=limit)
    for row in found.rows:
        kind = POOLINGS[row.setting.pooling.mode].layout
        layouts = [encoder.layout(t, kind, row.setting.chunking, limit) for t in TEXTS.values()]
        inserted = sum(x.n_landmarks + max(0, len(x.cls_positions) - 1) for x in layouts)
        assert row.tokens_per_document == np.mean([len(layout) for layout in layouts]), row.name
        assert row.landmarks_per_document == inserted / 4
        assert row.overhead == inserted / sum(layout.n_kept for layout in layouts)
        assert row.documents_cut == sum(layout.n_cut > 0 for layout in layouts)


def test_intervals_and_paired_differences_are_bootstrapped_over_queries(toy):
    row = toy.row("cls")
    assert toy.baseline == "cls"
    assert toy.difference(row, "recall@1") is None
    assert toy.interval(row, "recall@1") == bootstrap_interval(np.asarray([1.0, 0.0]))
    other = toy.row("landmark:2")
    assert toy.difference(other, "recall@1") == bootstrap_interval(np.asarray([0.0, 1.0]))


def test_another_baseline_can_be_chosen():
    found = run_sweep(bag(), TOY, SweepConfig((PoolingMode.CLS, PoolingMode.MEAN), baseline="mean"))
    assert found.difference(found.row("mean"), "ndcg@10") is None
    assert found.difference(found.row("cls"), "recall@1").value == -0.5


# What is shared.


def test_poolings_without_landmarks_share_one_pass_and_each_granularity_takes_one():
    encoder = bag()
    run_sweep(encoder, TOY, SMALL)
    documents = [call for call in encoder.calls if TEXTS["none"] in call[2]]
    assert [(kind, len(modes)) for kind, modes, _ in documents] == [
        (LayoutKind.PLAIN, 3),
        *[(LayoutKind.LANDMARK, 1)] * 4,
        (LayoutKind.MULTI_CLS, 1),
    ]


def test_queries_of_one_granularity_are_embedded_once():
    encoder = bag()
    run_sweep(encoder, TOY, SweepConfig((PoolingMode.LANDMARK,), (2, 4, 8), query_granularity=4))
    assert sum("a b" in texts for _, _, texts in encoder.calls) == 1
    apart = bag()
    run_sweep(apart, TOY, SweepConfig((PoolingMode.LANDMARK,), (2, 4, 8)))
    assert sum("a b" in texts for _, _, texts in apart.calls) == 5


def test_further_steps_of_every_k_take_passes_of_their_own():
    config = SweepConfig((PoolingMode.MEAN, PoolingMode.EVERY_K), (2, 4, 8), every_granularity=True)
    groups = plan_passes(bag(), plan_settings(config))
    assert [[s.name for s in group] for group in groups] == [
        ["mean", "every_k:2"],
        ["every_k:4"],
        ["every_k:8"],
    ]


def test_in_a_family_every_pooling_takes_a_pass():
    encoder = bag()
    encoder.variants = frozenset({PoolingMode.CLS})
    assert all(len(group) == 1 for group in plan_passes(encoder, plan_settings(SMALL)))


def test_embedding_goes_through_what_is_given():
    seen = []

    def embed(*arguments):
        seen.append(len(arguments[1]))
        return embed_documents(*arguments)

    run_sweep(bag(), TOY, SweepConfig((PoolingMode.MEAN,)), embed=embed)
    assert seen == [4, 2]


# Progress and stop.


def test_rows_are_handed_over_one_pass_after_the_other():
    counts = []
    run_sweep(bag(), TOY, SMALL, on_row=lambda found: counts.append(len(found.rows)))
    assert counts == [3, 4, 5, 6, 7, 8]


def test_rows_handed_over_on_the_way_say_that_more_are_to_come():
    # What is written of them stays, should the run be killed.
    said = []
    run_sweep(bag(), TOY, SMALL, on_row=lambda found: said.append(found.to_dict()["is_partial"]))
    assert said == [True] * 5 + [False]


def test_progress_rises_to_the_end():
    steps = []
    run_sweep(bag(), TOY, SMALL, progress=lambda done, total: steps.append((done, total)))
    done = [step for step, _ in steps]
    assert done == sorted(done)
    assert {total for _, total in steps} == {done[-1]}


def test_a_stop_keeps_the_rows_that_are_there():
    rows = []
    found = run_sweep(
        bag(),
        TOY,
        SMALL,
        on_row=rows.append,
        should_stop=lambda: len(rows) > 1,
    )
    assert found.is_partial
    assert [row.name for row in found.rows] == ["cls", "mean", "landmark:2", "every_k:2"]
    assert found.rows_wanted == 8
    assert found.recommendation() is not None
    assert found.to_dict()["is_partial"]


def test_a_stop_before_anything_leaves_an_empty_sweep():
    found = run_sweep(bag(), TOY, SMALL, should_stop=lambda: True)
    assert (found.rows, found.recommendation(), found.is_partial) == ((), None, True)
    assert found.to_dict()["recommendation"] is None
    assert len(found.to_frame()) == 0


# Settings.


def test_query_granularity_is_the_documents_own_or_a_fixed_one():
    own = plan_settings(SMALL)
    assert all(s.query_chunking == s.chunking for s in own)
    fixed = plan_settings(SweepConfig(granularities=(2, 4), reference=2, query_granularity=8))
    marked = [s for s in fixed if s.pooling.mode is PoolingMode.LANDMARK]
    assert {s.query_chunking for s in marked} == {ChunkingConfig(granularity=8)}
    (every,) = [s for s in fixed if s.pooling.mode is PoolingMode.EVERY_K]
    assert (every.pooling.k, every.query_pooling.k) == (2, 8)


def test_variable_and_sentence_rows_read_the_chunking_that_is_given():
    base = ChunkingConfig(granularities=(2, 3), seed=5, sentence_cap=7, close_tail=True)
    rows = {s.name: s.chunking for s in plan_settings(SMALL, base)}
    assert rows["landmark:variable"].granularities == (2, 3)
    assert rows["landmark:variable"].seed == 5
    assert rows["landmark:sentence"].sentence_cap == 7
    assert rows["landmark:4"] == ChunkingConfig(granularity=4, close_tail=True)
    assert rows["landmark:sentence"].mode is ChunkingMode.SENTENCE


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"granularities": (0,)}, "granularity is 0"),
        ({"granularities": (2, 2)}, "name one twice"),
        ({"poolings": ()}, "give at least one, each once"),
        ({"poolings": ("cls", "cls")}, "give at least one, each once"),
        ({"metrics": ("f1",)}, "metric is 'f1'"),
        ({"query_granularity": 0}, "granularity is 0"),
        ({"reference": 0}, "granularity is 0"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        SweepConfig(**settings)


def test_nothing_to_sweep_over_is_refused():
    config = SweepConfig((PoolingMode.LANDMARK,), (), False, False)
    with pytest.raises(ValueError, match="nothing to sweep over"):
        run_sweep(bag(), TOY, config)


def test_a_baseline_that_is_no_row_is_refused_with_the_rows():
    with pytest.raises(ValueError, match="baseline is 'x'; allowed: cls, mean"):
        run_sweep(bag(), TOY, SweepConfig(baseline="x"))


def test_a_pooling_that_cannot_be_had_is_refused_before_anything_is_embedded():
    encoder = bag()
    encoder.refused = {PoolingMode.MULTI_CLS}
    with pytest.raises(ValueError, match="multi_cls cannot be had"):
        run_sweep(encoder, TOY, SMALL)
    assert encoder.calls == []


def test_queries_without_a_vector_count_nothing_and_are_named():
    blank = replace(TOY, queries={"q-start": "a b", "q-end": " "})
    found = run_sweep(bag(), blank, SweepConfig((PoolingMode.MEAN,)))
    assert found.rows[0].per_query["recall@1"].tolist() == [1.0, 0.0]
    assert [e.id for e in found.excluded] == ["q-end"]


# What is taken away.


def test_the_result_is_plain_json_with_what_was_promised(toy):
    said = json.loads(json.dumps(toy.to_dict(), allow_nan=False))
    for row in said["rows"]:
        assert {
            *("pooling", "granularity", "landmarks_per_document", "overhead", "seconds"),
            *("ndcg@10", "ndcg@10_low", "ndcg@10_high", "recall@1", "mrr@10"),
        } <= set(row)
    assert {"pooling", "granularity", "verdict", "queries_needed", "settings", "python"} <= set(
        said["recommendation"]
    )
    assert said["notes"] == ["a note"]


def test_the_frame_has_a_row_a_setting_and_its_differences(toy):
    frame = toy.to_frame()
    assert frame["name"].tolist() == NAMES
    assert frame.loc[frame["name"] == "mean", "minus_baseline_recall@1"].item() == 0.5


def test_labels_are_words(toy):
    assert toy.label("landmark:4") == "Landmark (LMK), 4"
    assert toy.label("landmark:sentence") == "Landmark (LMK), by sentence"
    assert toy.label("every_k:2") == "Every k-th token, k = 2"
    with pytest.raises(ValueError, match="row is 'x'; allowed: cls"):
        toy.row("x")
    with pytest.raises(ValueError, match="metric is 'map@10'; measured were"):
        toy.recommendation("map@10")


@pytest.mark.parametrize("name", ["landmark:8", "landmark:sentence", "every_k:8", "cls"])
@pytest.mark.parametrize("query_granularity", [None, 4])
def test_the_exported_lines_run_and_embed_as_the_sweep_did(
    name, query_granularity, tiny_folder, tiny_encoder
):
    config = SweepConfig(granularities=(8,), reference=8, query_granularity=query_granularity)
    settings = {s.name: s for s in plan_settings(config)}
    setting = settings[name]
    scope: dict = {}
    exec(settings_code(setting, str(tiny_folder), 64), scope)
    encoder = tiny_encoder("bert")
    texts = [Document(str(i), "", text) for i, text in enumerate(scope["documents"])]
    asked = [Document(str(i), "", text) for i, text in enumerate(scope["queries"])]
    mode = setting.pooling.mode
    rows = embed_documents(encoder, texts, [setting.pooling], setting.chunking, 64).vectors[mode]
    queries = embed_documents(
        encoder, asked, [setting.query_pooling], setting.query_chunking, 64
    ).vectors[mode]
    np.testing.assert_allclose(scope["vectors"], rows, atol=1e-5)
    np.testing.assert_allclose(scope["scores"], queries @ rows.T, atol=1e-5)
