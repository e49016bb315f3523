"""The cache of vectors: what hits, what misses, what survives an interrupt or a damaged file."""

import logging
import os
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fakes import BagEncoder
from helpers import fixed

from lmk_viz.config import ChunkingConfig, ChunkingMode, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import EmbeddingTable, embed_documents
from lmk_viz.embedding_cache import EmbeddingCache, cache_folder
from lmk_viz.pooling import parse_poolings

ALL = parse_poolings("cls,mean,landmark,every_k,multi_cls")
GIB = 2**30
WORDS = ["abcde", "", "ab", "hhhhhhhhhh", "a", "cdcdcdcd"]
TEXTS = [w for w in WORDS if w]


class KnownBag(BagEncoder):
    """A bag encoder that can tell what it is."""

    fingerprint = "a bag"


def documents(*words: str) -> list[Document]:
    return [Document(f"{i}", word, " ".join(word)) for i, word in enumerate(words)]


def embed(cache: EmbeddingCache, encoder: BagEncoder | None = None, **changes) -> EmbeddingTable:
    """A call with settings that can be changed one by one."""
    settings = {
        "documents": documents(*WORDS),
        "poolings": ALL,
        "chunking": fixed(2),
        "max_length": 9,
        **changes,
    }
    return cache.embed(encoder or KnownBag("abcdefgh"), **settings)


def passes(encoder: BagEncoder) -> int:
    """Texts that went through the encoder."""
    return sum(len(texts) for _, _, texts in encoder.calls)


def assert_same(found: EmbeddingTable, wanted: EmbeddingTable, atol: float = 0.0) -> None:
    """Every field but the seconds of the call."""
    for name in ("encoder_name", "chunking", "poolings", "documents", "excluded"):
        assert getattr(found, name) == getattr(wanted, name)
    assert list(found.vectors) == list(wanted.vectors)
    for mode, rows in wanted.vectors.items():
        np.testing.assert_allclose(found.vectors[mode], rows, rtol=0, atol=atol)
        assert found.vectors[mode].dtype == np.float32
        np.testing.assert_array_equal(found.fell_back[mode], wanted.fell_back[mode])
        np.testing.assert_array_equal(found.tokens_cut[mode], wanted.tokens_cut[mode])
    np.testing.assert_array_equal(found.tokens, wanted.tokens)
    np.testing.assert_array_equal(found.landmarks, wanted.landmarks)


@pytest.fixture
def cache(tmp_path: Path) -> EmbeddingCache:
    return EmbeddingCache(tmp_path / "kept", GIB, flush_seconds=0.0)


def files_of(cache: EmbeddingCache) -> list[Path]:
    return sorted(cache.files.folder.glob("*.parquet"))


# The same as without.


@pytest.mark.parametrize("when", ["empty", "full", "partly full"])
def test_everything_of_the_table_comes_back_as_without_a_cache(cache, when):
    wanted = embed_documents(KnownBag("abcdefgh"), documents(*WORDS), ALL, fixed(2), 9)
    if when == "full":
        embed(cache)
    elif when == "partly full":
        embed(cache, documents=documents("ab", "cdcdcdcd"), poolings=parse_poolings("mean"))
    found = embed(cache)
    assert_same(found, wanted)
    assert found.fell_back[PoolingMode.LANDMARK].tolist() == [False] * 5
    assert found.tokens_cut[PoolingMode.LANDMARK].max() > 0


def test_a_full_cache_spares_every_pass(cache):
    embed(cache)
    encoder = KnownBag("abcdefgh")
    embed(cache, encoder)
    assert encoder.calls == []


def test_a_fallback_is_remembered(cache):
    for _ in range(2):
        table = embed(cache, documents=documents("aa"), chunking=fixed(5), max_length=3)
        assert table.fell_back[PoolingMode.LANDMARK].tolist() == [True]


def test_a_text_that_stands_in_a_corpus_twice_is_found_twice(cache):
    given = documents("ab", "cd", "ab")
    first = embed(cache, documents=given)
    encoder = KnownBag("abcdefgh")
    assert_same(embed(cache, encoder, documents=given), first)
    assert encoder.calls == []


def test_documents_go_by_their_text_not_by_their_id(cache):
    embed(cache, documents=[Document("x", "", "a b")])
    encoder = KnownBag("abcdefgh")
    table = embed(cache, encoder, documents=[Document("y", "other", "a b", "label")])
    assert encoder.calls == []
    assert table.documents[0].id == "y"


def test_a_vector_that_is_not_finite_is_named_each_time_and_never_kept(cache):
    def spoil(layout, states):
        if "d" in layout.text:
            states[:] = np.nan

    for _ in range(2):
        encoder = KnownBag("abcdefgh")
        encoder.spoil = spoil
        table = embed(cache, encoder)
        assert [e.reason[:10] for e in table.excluded] == ["empty text", "the vector", "the vector"]
    assert {t for _, _, texts in encoder.calls for t in texts} == {"a b c d e", "c d c d c d c d"}


def test_an_encoder_that_cannot_tell_what_it_is_is_not_cached(cache):
    for _ in range(2):
        encoder = BagEncoder("abcdefgh")
        embed(cache, encoder)
        assert encoder.calls
    assert cache.size() == 0


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_a_cache_in_front_of_a_real_model_changes_no_bit_of_a_whole_run(cache, tiny_encoder, name):
    encoder = tiny_encoder(name)
    given = [Document(str(n), "", "Rivers carry water to the sea. " * n) for n in (1, 3, 2, 1)]
    wanted = embed_documents(encoder, given, ALL, fixed(4), 40)
    assert_same(cache.embed(encoder, given, ALL, fixed(4), 40), wanted)
    assert_same(cache.embed(encoder, given, ALL, fixed(4), 40), wanted)


def test_what_is_filled_in_is_near_what_one_run_gives(cache, tiny_encoder):
    # Batches are other ones, so padding is, and with it the order of sums.
    encoder = tiny_encoder("bert")
    given = [Document(str(n), "", "Rivers carry water to the sea. " * n) for n in (1, 3, 2, 4)]
    cache.embed(encoder, given[1:3], ALL, fixed(4), 60)
    wanted = embed_documents(encoder, given, ALL, fixed(4), 60)
    assert_same(cache.embed(encoder, given, ALL, fixed(4), 60), wanted, atol=1e-5)


def test_each_pooling_of_a_family_goes_by_the_variant_that_it_reads(cache, tiny_family):
    given = [Document("x", "", "Rivers carry water to the sea.")]
    poolings = parse_poolings("cls,mean,landmark")
    wanted = embed_documents(tiny_family, given, poolings)
    assert_same(cache.embed(tiny_family, given, poolings), wanted)
    # The backbone has the same name in no setting, and other weights.
    backbone = tiny_family.backbone
    found = cache.embed(backbone, given, poolings)
    assert_same(found, embed_documents(backbone, given, poolings))
    assert np.abs(found.vectors[PoolingMode.CLS] - wanted.vectors[PoolingMode.CLS]).max() > 1e-3
    # A variant by itself is the family's own.
    assert tiny_family.encoder_for(PoolingMode.CLS).fingerprint != backbone.fingerprint


def test_fingerprint_sees_a_single_weight_and_neither_name_nor_folder(build_model, build_tokenizer):
    from lmk_viz.encoder import Encoder

    tokenizer = build_tokenizer("wordpiece")
    first = Encoder(build_model("bert"), tokenizer, name="one", source="here")
    second = Encoder(build_model("bert"), tokenizer, name="two", source="there")
    assert first.fingerprint == second.fingerprint
    changed = build_model("bert")
    changed.encoder.layer[1].output.dense.bias.data[3] += 1e-6
    assert Encoder(changed, tokenizer).fingerprint != first.fingerprint
    assert Encoder(build_model("bert").bfloat16(), tokenizer).fingerprint != first.fingerprint
    other = build_tokenizer("wordpiece", sep_token="[MASK]")
    assert Encoder(build_model("bert"), other).fingerprint != first.fingerprint


# What hits and what misses.

MISSES = {
    "text": {"documents": documents("abcdf", "ba", "hhhhhhhhh", "b", "cdcdcdc")},
    "length limit": {"max_length": 8},
    "not normalised": {"normalize": False},
    "pooling's own setting": {"poolings": [PoolingConfig(PoolingMode.MEAN, include_special=False)]},
    "step": {"poolings": [PoolingConfig(PoolingMode.EVERY_K, k=3)]},
    "granularity": {"poolings": parse_poolings("landmark"), "chunking": fixed(3)},
    "chunks of multi_cls": {"poolings": parse_poolings("multi_cls"), "chunking": fixed(3)},
    "closed tail": {
        "poolings": parse_poolings("landmark"),
        "chunking": ChunkingConfig(granularity=2, close_tail=True),
    },
    "chunking mode": {
        "poolings": parse_poolings("landmark"),
        "chunking": ChunkingConfig(ChunkingMode.VARIABLE, granularities=(2,)),
    },
}


@pytest.mark.parametrize("changes", MISSES.values(), ids=MISSES)
def test_a_change_that_matters_misses(cache, changes):
    embed(cache)
    encoder = KnownBag("abcdefgh")
    table = embed(cache, encoder, **changes)
    assert passes(encoder) >= len(TEXTS)
    settings = {"documents": documents(*WORDS), "poolings": ALL, "chunking": fixed(2)}
    settings |= {"max_length": 9} | changes
    assert_same(table, embed_documents(KnownBag("abcdefgh"), **settings))


VARIABLE = ChunkingConfig(ChunkingMode.VARIABLE, granularities=(2, 3))
SENTENCE = ChunkingConfig(ChunkingMode.SENTENCE, sentence_cap=4)


@pytest.mark.parametrize(
    ("chunking", "changes"),
    [
        (VARIABLE, {"granularities": (2, 4)}),
        (VARIABLE, {"per_chunk": True}),
        (VARIABLE, {"seed": 1}),
        (SENTENCE, {"sentence_cap": 3}),
        (SENTENCE, {"language": "de"}),
    ],
    ids=str,
)
def test_settings_that_a_chunking_reads_miss_and_the_others_hit(cache, chunking, changes):
    poolings = parse_poolings("landmark")
    embed(cache, chunking=chunking, poolings=poolings)
    for settings, is_made in ((replace(chunking, **changes), True), (chunking, False)):
        encoder = KnownBag("abcdefgh")
        embed(cache, encoder, chunking=settings, poolings=poolings)
        assert bool(encoder.calls) is is_made
    encoder = KnownBag("abcdefgh")
    embed(cache, encoder, chunking=replace(chunking, granularity=77), poolings=poolings)
    assert encoder.calls == []


def test_another_encoder_misses_whatever_its_name(cache):
    embed(cache)
    encoder = KnownBag("abcdefgh")
    encoder.fingerprint = "another bag"
    embed(cache, encoder)
    assert passes(encoder) == 3 * len(TEXTS)


def test_granularities_share_what_has_no_chunks(cache):
    embed(cache, poolings=parse_poolings("cls,mean,landmark"))
    encoder = KnownBag("abcdefgh")
    embed(cache, encoder, poolings=parse_poolings("cls,mean,landmark"), chunking=fixed(4))
    assert {modes for _, modes, _ in encoder.calls} == {(PoolingMode.LANDMARK,)}


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_tokens": 3},
        {"poolings": parse_poolings("multi_cls,mean,cls")},
        {"max_length": None},
        {"documents": documents(*reversed(WORDS))},
    ],
    ids=["batch size", "order of poolings", "the limit left out", "order of documents"],
)
def test_a_change_that_does_not_matter_hits(cache, changes):
    embed(cache, KnownBag("abcdefgh", max_length=9))
    encoder = KnownBag("abcdefgh", max_length=9)
    embed(cache, encoder, **changes)
    assert encoder.calls == []


def test_poolings_that_both_miss_share_a_pass_and_one_alone_goes_alone(cache):
    embed(cache, documents=documents("ab"), poolings=parse_poolings("cls"))
    encoder = KnownBag("abcdefgh")
    embed(cache, encoder, documents=documents("ab", "cd"), poolings=parse_poolings("cls,mean"))
    assert [(modes, texts) for _, modes, texts in encoder.calls] == [
        ((PoolingMode.MEAN,), ["a b"]),
        ((PoolingMode.CLS, PoolingMode.MEAN), ["c d"]),
    ]


# Interrupts.


class Cancelled(BaseException):
    """As a page raises it to stop a script."""


@pytest.mark.parametrize("flush_seconds", [0.0, 1e6], ids=["written at once", "written at the end"])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path, flush_seconds):
    cache = EmbeddingCache(tmp_path, GIB, flush_seconds)
    wanted = embed_documents(KnownBag("abcdefgh"), documents(*WORDS), ALL, fixed(2), 9)

    def stop(done: int, total: int) -> None:
        if done >= 7:
            raise Cancelled

    first = KnownBag("abcdefgh")
    with pytest.raises(Cancelled):
        embed(cache, first, batch_tokens=1, progress=stop)
    second = KnownBag("abcdefgh")
    seen: list[tuple[int, int]] = []
    table = embed(cache, second, batch_tokens=1, progress=lambda *step: seen.append(step))
    assert_same(table, wanted)
    assert (passes(first), passes(second)) == (7, 15 - 7)
    assert seen == [(done, 15) for done in range(8, 16)]


def test_a_batch_is_on_disk_before_the_next_one_is_made(cache):
    def stop(done: int, total: int) -> None:
        assert len(files_of(cache)) == done

    embed(cache, poolings=parse_poolings("mean"), batch_tokens=1, progress=stop)


def test_seconds_by_pooling_are_those_of_the_making(cache):
    first = embed(cache)
    again = embed(cache)
    assert again.pooling_seconds == pytest.approx(first.pooling_seconds)
    assert all(seconds > 0 for seconds in again.pooling_seconds.values())


# Damage.


def damage(file: Path, kind: str) -> None:
    data = bytearray(file.read_bytes())
    match kind:
        case "one bit of a vector":
            data[60] ^= 1
        case "one bit of the end":
            data[-20] ^= 1
        case "cut short":
            data = data[: len(data) // 2]
        case "emptied":
            data = bytearray()
        case "not Parquet":
            data = bytearray(b"hello" * 100)
    file.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "kind",
    ["one bit of a vector", "one bit of the end", "cut short", "emptied", "not Parquet"],
)
def test_a_damaged_file_is_seen_and_made_again(cache, caplog, kind):
    poolings = parse_poolings("mean")
    wanted = embed(cache, poolings=poolings)
    (file,) = files_of(cache)
    damage(file, kind)
    for calls in (1, 0):
        encoder = KnownBag("abcdefgh")
        with caplog.at_level(logging.WARNING):
            assert_same(embed(cache, encoder, poolings=poolings), wanted)
        assert len(encoder.calls) == calls
    assert not file.exists()
    assert caplog.text.count("was damaged") == 1


def test_a_file_in_the_place_of_another_setting_is_not_believed(cache):
    poolings = parse_poolings("mean")
    embed(cache, poolings=poolings)
    (file,) = files_of(cache)
    embed(cache, poolings=poolings, normalize=False)
    (other,) = set(files_of(cache)) - {file}
    wanted = embed_documents(KnownBag("abcdefgh"), documents(*WORDS), poolings, fixed(2), 9)
    setting = file.name.partition("-")[0]
    checksum = other.name.partition("-")[2]
    file.unlink()
    other.rename(other.with_name(f"{setting}-{checksum}"))
    assert_same(embed(cache, poolings=poolings), wanted)


# Bound and folder.


def test_what_was_not_used_for_longest_goes_first(tmp_path):
    cache = EmbeddingCache(tmp_path, GIB)
    poolings = parse_poolings("mean")
    for number, word in enumerate(("ab", "cd", "ef")):
        before = set(files_of(cache))
        embed(cache, documents=documents(word), poolings=poolings)
        (file,) = set(files_of(cache)) - before
        os.utime(file, (number, number))
    embed(cache, documents=documents("ab"), poolings=poolings)  # Used again.
    one = cache.size() // 3
    cache.files.max_bytes = int(2.5 * one)
    cache.files.trim()
    made = {}
    for word in ("ab", "cd", "ef"):
        encoder = KnownBag("abcdefgh")
        embed(cache, encoder, documents=documents(word), poolings=poolings)
        made[word] = bool(encoder.calls)
        cache.files.max_bytes = GIB
    assert made == {"ab": False, "cd": True, "ef": False}


def test_the_folder_never_holds_more_than_its_bound(tmp_path):
    probe = EmbeddingCache(tmp_path / "probe", GIB)
    embed(probe, documents=documents("ab"), poolings=parse_poolings("mean"))
    bound = int(2.5 * probe.size())
    cache = EmbeddingCache(tmp_path / "kept", bound)
    for word in "abcdefgh":
        embed(cache, documents=documents(word), poolings=parse_poolings("mean"))
        assert 0 < cache.size() <= bound


def test_clearing_removes_what_was_kept_and_nothing_else(cache):
    embed(cache)
    stranger = cache.files.folder / "notes.txt"
    stranger.write_text("mine")
    size = cache.size()
    assert cache.clear() == size > 0
    assert (cache.size(), stranger.read_text()) == (0, "mine")
    embed(cache)
    assert cache.size() > 0


def test_half_written_files_are_swept_up_when_nobody_can_be_writing_them(cache):
    embed(cache)
    old, new = (cache.files.folder / f".x{n}.parquet.1" for n in (1, 2))
    for file in (old, new):
        file.write_bytes(b"half")
    os.utime(old, (0, 0))
    cache.files.trim()
    assert (old.exists(), new.exists()) == (False, True)


@pytest.mark.parametrize("drop", [lambda files: files.clear(), lambda files: files.trim()])
def test_a_file_that_is_being_written_is_left_to_its_writer(cache, drop):
    # Else its writer, not finding it, would take the folder for one that cannot be written.
    embed(cache)
    cache.files.max_bytes = 1
    file = cache.files.folder / ".x.parquet.1"
    file.write_bytes(b"half")
    drop(cache.files)
    assert [left.name for left in cache.files.folder.iterdir()] == [file.name]


def test_a_folder_that_cannot_be_written_is_warned_of_once(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    cache = EmbeddingCache(tmp_path / "file" / "kept", GIB, flush_seconds=0.0)
    wanted = embed_documents(KnownBag("abcdefgh"), documents(*WORDS), ALL, fixed(2), 9)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert_same(embed(cache), wanted)
    assert caplog.text.count("vectors are not kept on disk") == 1


def test_threads_share_a_folder(tmp_path):
    wanted = embed_documents(KnownBag("abcdefgh"), documents(*WORDS), ALL, fixed(2), 9)
    found: list[EmbeddingTable] = []
    # As processes do: a cache each. One is small, so that it drops what the other reads.
    caches = [EmbeddingCache(tmp_path, size, flush_seconds=0.0) for size in (GIB, 6_000)]

    def work(cache: EmbeddingCache) -> None:
        found.extend(embed(cache, batch_tokens=1) for _ in range(2))

    threads = [threading.Thread(target=work, args=(cache,)) for cache in caches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for table in found:
        assert_same(table, wanted)
    assert [f for f in tmp_path.iterdir() if f.name.startswith(".")] == []


# What an operator sets.


def test_the_environment_says_where_and_how_large(tmp_path):
    cache = EmbeddingCache.from_environment(
        {"LMK_VIZ_CACHE_DIR": str(tmp_path), "LMK_VIZ_CACHE_GB": "0.5"}
    )
    assert (cache.files.folder, cache.files.max_bytes) == (tmp_path / "embeddings", GIB // 2)


def test_without_settings_it_lies_in_the_users_cache_folder(monkeypatch):
    monkeypatch.setattr("sys.platform", "linux")
    cache = EmbeddingCache.from_environment({"XDG_CACHE_HOME": "/somewhere"})
    assert cache.files.folder == Path("/somewhere/lmk_viz/embeddings")
    assert cache.files.max_bytes == 2 * GIB
    assert cache_folder({}) == Path.home() / ".cache" / "lmk_viz" / "embeddings"


def test_zero_switches_it_off():
    assert EmbeddingCache.from_environment({"LMK_VIZ_CACHE_GB": "0"}) is None


@pytest.mark.parametrize("size", ["much", "-1", "nan", "inf", ""])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match=f"LMK_VIZ_CACHE_GB is '{size}'; allowed: a number"):
        EmbeddingCache.from_environment({"LMK_VIZ_CACHE_GB": size})


def test_a_length_limit_that_cannot_be_used_is_refused_with_and_without(cache, tiny_encoder):
    with pytest.raises(ValueError, match="length limit is 2; allowed"):
        cache.embed(tiny_encoder("bert"), documents("ab"), ALL, max_length=2)
