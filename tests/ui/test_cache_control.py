"""The cache of vectors on disk as pages and the command line use it."""

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from lmk_viz.__main__ import main
from lmk_viz.config import EncoderConfig, PoolingConfig, PoolingMode
from lmk_viz.documents import Document
from lmk_viz.embedding import embed_documents
from lmk_viz.embedding_cache import EmbeddingCache
from lmk_viz.ui import cache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's vectors are kept."""
    monkeypatch.setenv("LMK_VIZ_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setenv("LMK_VIZ_CACHE_GB", "1")
    return tmp_path / "kept" / "embeddings"


def kept(folder: Path) -> list[Path]:
    return list(folder.glob("*.parquet"))


def get_embeddings(encoder: Path, text: str) -> object:
    return cache.get_embeddings(
        EncoderConfig(str(encoder), device="cpu"),
        (Document("x", "", text),),
        (PoolingConfig(PoolingMode.MEAN),),
        cache.ChunkingConfig(),
        32,
    )


def page() -> None:
    from lmk_viz.ui import panels

    panels.show_cache()


def test_pages_keep_their_vectors_and_a_button_clears_them(folder, tiny_folder):
    assert not AppTest.from_function(page).run().button
    get_embeddings(tiny_folder, "rivers carry water")
    (file,) = kept(folder)
    at = AppTest.from_function(page).run()
    (button,) = at.button
    assert button.label == f"Clear the cache of vectors ({file.stat().st_size / 1e6:.1f} MB)"
    button.click()
    at.run()
    assert (kept(folder), list(at.button), list(at.exception)) == ([], [], [])


@pytest.mark.parametrize(
    ("size", "wanted"), [("0", []), ("much", [])], ids=["switched off", "not a size"]
)
def test_there_is_no_button_where_there_is_no_cache(folder, monkeypatch, size, wanted):
    monkeypatch.setenv("LMK_VIZ_CACHE_GB", size)
    at = AppTest.from_function(page).run()
    assert [b.label for b in at.button] == wanted
    assert not at.exception


def test_a_size_that_is_none_is_told_by_the_call_that_embeds(folder, monkeypatch, tiny_folder):
    monkeypatch.setenv("LMK_VIZ_CACHE_GB", "much")
    with pytest.raises(ValueError, match="LMK_VIZ_CACHE_GB is 'much'"):
        get_embeddings(tiny_folder, "rivers carry more water")


def test_without_a_cache_pages_embed_as_before(monkeypatch):
    monkeypatch.setenv("LMK_VIZ_CACHE_GB", "0")
    assert cache.cached_embed() is embed_documents


def test_embed_verb_keeps_vectors_unless_it_is_told_not_to(folder, tmp_path, tiny_folder):
    source = tmp_path / "text.txt"
    source.write_text("Rivers carry water from the hills to the sea.")
    command = ["embed", str(source), f"--encoder={tiny_folder}", "--pooling=cls,mean"]
    command += [f"--output={tmp_path / 'out.parquet'}", "--device=cpu"]
    assert main([*command, "--no-cache"]) == 0
    assert kept(folder) == []
    assert main(command) == 0
    assert len(kept(folder)) == 2
    before = {file: file.stat().st_mtime_ns for file in kept(folder)}
    assert main(command) == 0
    # Found, so that none was written, and each was marked as used.
    assert set(kept(folder)) == set(before)
    assert all(file.stat().st_mtime_ns > at for file, at in before.items())
    cache_ = EmbeddingCache.from_environment()
    assert cache_ is not None
    assert cache_.clear() > 0
