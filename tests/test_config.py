import dataclasses
import hashlib

import pytest

from lmk_viz.config import (
    MAX_GRANULARITY,
    MAX_SEED,
    AttentionConfig,
    ChunkingConfig,
    ChunkingMode,
    EncoderConfig,
    LayerKind,
    LayoutKind,
    PoolingConfig,
    PoolingMode,
    ProjectionConfig,
    ProjectionMethod,
    digest,
)


@pytest.mark.parametrize(
    ("config", "field", "member"),
    [
        (ChunkingConfig, "mode", ChunkingMode.SENTENCE),
        (PoolingConfig, "mode", PoolingMode.EVERY_K),
        (ProjectionConfig, "method", ProjectionMethod.PCA),
    ],
    ids=["chunking", "pooling", "projection"],
)
def test_a_mode_given_as_text_becomes_its_member(config, field, member):
    assert getattr(config(**{field: member.value}), field) is member


@pytest.mark.parametrize(
    ("enum", "message"),
    [
        (ChunkingMode, "chunking is 'nope'; allowed: fixed, variable, sentence"),
        (LayoutKind, "layout is 'nope'; allowed: plain, landmark, multi_cls"),
        (PoolingMode, "pooling is 'nope'; allowed: cls, mean, landmark, every_k, multi_cls"),
        (LayerKind, "layer kind is 'nope'; allowed: global, local"),
        (ProjectionMethod, "projection method is 'nope'; allowed: auto, umap, pca"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_an_unknown_mode_is_refused_with_what_came_and_what_is_allowed(enum, message):
    with pytest.raises(ValueError, match=message):
        enum("nope")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ChunkingConfig(mode="lmk_fixed"),
        lambda: PoolingConfig(mode="lmk_fixed"),
        lambda: ProjectionConfig(method="lmk_fixed"),
    ],
    ids=["chunking", "pooling", "projection"],
)
def test_settings_refuse_an_unknown_mode(make):
    with pytest.raises(ValueError, match="is 'lmk_fixed'; allowed: "):
        make()


WHOLE_NUMBERS = [
    pytest.param(ChunkingConfig, "granularity", 1, MAX_GRANULARITY, id="granularity"),
    pytest.param(ChunkingConfig, "sentence_cap", 1, MAX_GRANULARITY, id="sentence_cap"),
    pytest.param(ChunkingConfig, "seed", 0, MAX_SEED, id="chunking-seed"),
    pytest.param(PoolingConfig, "k", 1, MAX_GRANULARITY, id="k"),
    pytest.param(AttentionConfig, "bins", 1, 1024, id="bins"),
    pytest.param(ProjectionConfig, "n_neighbors", 2, 200, id="n_neighbors"),
    pytest.param(ProjectionConfig, "seed", 0, MAX_SEED, id="projection-seed"),
]


@pytest.mark.parametrize(("config", "field", "low", "high"), WHOLE_NUMBERS)
def test_a_whole_number_may_reach_both_ends_of_its_range(config, field, low, high):
    assert [getattr(config(**{field: x}), field) for x in (low, high)] == [low, high]


@pytest.mark.parametrize(("config", "field", "low", "high"), WHOLE_NUMBERS)
@pytest.mark.parametrize("side", ["below", "above"])
def test_a_whole_number_outside_its_range_is_refused(config, field, low, high, side):
    value = low - 1 if side == "below" else high + 1
    with pytest.raises(ValueError, match=f"{field} is {value}; allowed: {low:,} to {high:,}"):
        config(**{field: value})


@pytest.mark.parametrize(("config", "field", "low", "high"), WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [True, 32.0, "32"], ids=["bool", "float", "text"])
def test_what_is_no_whole_number_is_refused(config, field, low, high, value):
    with pytest.raises(TypeError, match=f"{field} is {value!r}; it has to be a whole number"):
        config(**{field: value})


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([32, 64], TypeError, r"granularities is \[32, 64\]; give a tuple"),
        ("32,64", TypeError, "granularities is '32,64'; give a tuple"),
        ((), ValueError, "granularities is empty; give at least one size"),
        ((32, 0), ValueError, "granularities is 0; allowed: 1 to"),
        ((32, "64"), TypeError, "granularities is '64'; it has to be a whole number"),
    ],
    ids=["list", "text", "empty", "zero", "text-inside"],
)
def test_bad_granularities_are_refused(value, error, message):
    with pytest.raises(error, match=message):
        ChunkingConfig(granularities=value)


@pytest.mark.parametrize("language", [None, "en", "zh", "zh-Hant", "abcdefghijkl"])
def test_a_language_code_is_accepted(language):
    assert ChunkingConfig(language=language).language == language


@pytest.mark.parametrize(
    "language",
    ["", "e", "-", "e2", "en_GB", "en us", "日本", "abcdefghijklm"],
    ids=["empty", "short", "dash", "digit", "underscore", "space", "no-ascii", "long"],
)
def test_what_is_no_language_code_is_refused(language):
    with pytest.raises(ValueError, match=f"language is {language!r}; allowed: an ISO 639 code"):
        ChunkingConfig(language=language)


@pytest.mark.parametrize(
    ("chunking", "words"),
    [
        (ChunkingConfig(), "fixed, 32 tokens"),
        (ChunkingConfig(granularity=7, close_tail=True), "fixed, 7 tokens, tail closed"),
        (
            ChunkingConfig("variable", granularities=(8, 16), seed=3),
            "variable, drawn per text from {8, 16}, seed 3",
        ),
        (
            ChunkingConfig("variable", per_chunk=True),
            "variable, drawn per chunk from {32, 64, 128, 256}, seed 0",
        ),
        (ChunkingConfig("sentence", sentence_cap=40), "sentences of at most 40 tokens"),
    ],
    ids=["fixed", "closed", "per-text", "per-chunk", "sentence"],
)
def test_chunking_describes_itself_in_words(chunking, words):
    assert chunking.describe() == words


@pytest.mark.parametrize(
    ("pooling", "label"),
    [
        (PoolingConfig("cls"), "CLS"),
        (PoolingConfig("mean"), "Mean"),
        (PoolingConfig("mean", include_special=False), "Mean, content only"),
        (PoolingConfig("landmark"), "Landmark (LMK)"),
        (PoolingConfig("every_k"), "Every k-th token"),
        (PoolingConfig("every_k", k=32), "Every k-th token, k = 32"),
        (PoolingConfig("multi_cls"), "MultiCLS"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_pooling_has_a_label(pooling, label):
    assert pooling.label == label


def test_an_encoder_name_is_read_without_the_space_round_it():
    assert EncoderConfig(name=" org/model\n").name == "org/model"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (" \t", "encoder is empty; give a hub id"),
        ("a\x00b", "holds NUL or is too long"),
        ("a" * 4097, "holds NUL or is too long"),
    ],
    ids=["blank", "nul", "long"],
)
def test_what_can_be_no_encoder_is_refused(name, message):
    with pytest.raises(ValueError, match=message):
        EncoderConfig(name=name)


def test_an_encoder_path_may_be_as_long_as_linux_allows():
    assert len(EncoderConfig(name="a" * 4096).name) == 4096


@pytest.mark.parametrize("dtype", ["auto", "float32", "bfloat16", "float16"])
def test_a_known_dtype_is_accepted(dtype):
    assert EncoderConfig(dtype=dtype).dtype == dtype


def test_an_unknown_dtype_is_refused():
    allowed = "auto, float32, bfloat16, float16"
    with pytest.raises(ValueError, match=f"dtype is 'int8'; allowed: {allowed}"):
        EncoderConfig(dtype="int8")


@pytest.mark.parametrize("value", [0.0, 1.0, 0, 1])
def test_min_dist_may_reach_both_ends_of_its_range(value):
    assert ProjectionConfig(min_dist=value).min_dist == value


@pytest.mark.parametrize("value", [-0.01, 1.01, float("nan"), float("inf")])
def test_min_dist_outside_its_range_is_refused(value):
    with pytest.raises(ValueError, match=f"min_dist is {value}; allowed: 0 to 1"):
        ProjectionConfig(min_dist=value)


ALL_SETTINGS = [ChunkingConfig, PoolingConfig, EncoderConfig, AttentionConfig, ProjectionConfig]


@pytest.mark.parametrize("config", ALL_SETTINGS)
def test_settings_cannot_be_changed(config):
    made = config()
    field = dataclasses.fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError, match=field):
        setattr(made, field, getattr(made, field))


@pytest.mark.parametrize("config", ALL_SETTINGS)
def test_equal_settings_are_one_cache_key(config):
    assert len({config(), config()}) == 1


def test_text_and_member_make_the_same_settings():
    assert ChunkingConfig("variable") == ChunkingConfig(ChunkingMode.VARIABLE)


def test_the_defaults_are_those_of_the_method():
    # The README example infers at 32, fine-tuning draws from the set.
    made = ChunkingConfig()
    assert (made.mode, made.granularity, made.granularities, made.per_chunk, made.close_tail) == (
        ChunkingMode.FIXED,
        32,
        (32, 64, 128, 256),
        False,
        False,
    )


def test_mean_counts_special_tokens_by_default_as_in_the_authors_code():
    assert PoolingConfig("mean").include_special is True


def test_a_digest_is_the_start_of_the_sha256_of_the_parts_as_json():
    # Written out by hand, so it cannot depend on the process or on Python's own hashing.
    whole = hashlib.sha256(b'["caf\\u00e9", 1, [true, null]]').hexdigest()
    assert digest("café", 1, (True, None)) == whole[:16]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (("a", "b"), ("ab",)),
        (("a", "b"), ("b", "a")),
        (("1",), (1,)),
        ((b"\xab",), ("ab",)),
        ((("a",), "b"), (("a", "b"),)),
        ((b"a",), (b"b",)),
        ((PoolingConfig("cls"),), (PoolingConfig("mean"),)),
        (((PoolingConfig("cls"), b"a"),), ((PoolingConfig("mean"), b"a"),)),
        ((ChunkingConfig(seed=1),), (ChunkingConfig(seed=2),)),
        (("\ud800",), ("\ud801",)),
    ],
    ids=[
        "joined",
        "order",
        "number-and-text",
        "bytes-and-hex",
        "nesting",
        "bytes",
        "settings",
        "settings-and-bytes-in-a-tuple",
        "one-field",
        "lone-surrogates",
    ],
)
def test_different_parts_have_different_digests(left, right):
    assert digest(*left) != digest(*right)


def test_settings_of_two_classes_with_equal_fields_have_different_digests():
    @dataclasses.dataclass(frozen=True)
    class Left:
        size: int = 1

    @dataclasses.dataclass(frozen=True)
    class Right:
        size: int = 1

    assert digest(Left()) != digest(Right())
