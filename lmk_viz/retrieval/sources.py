"""A retrieval data set from whatever a path names: bundled, a folder, an archive, tables."""

from pathlib import Path

from lmk_viz.corpus import Corpus, corpus_from_table, load_corpus, table_from_bytes
from lmk_viz.corpus_sources import read_upload
from lmk_viz.retrieval.archives import dataset_from_zip
from lmk_viz.retrieval.dataset import RetrievalDataset, load_dataset, sample_dataset
from lmk_viz.retrieval.made_queries import EvidencePlace, dataset_from_documents
from lmk_viz.retrieval.records import find_file
from lmk_viz.retrieval.uploads import dataset_from_tables, guess_document_columns

__all__ = ["open_dataset"]


def open_dataset(
    path: str | None = None,
    queries: str | None = None,
    split: str = "test",
    with_titles: bool = False,
    place: EvidencePlace | str = EvidencePlace.SPREAD,
    seed: int = 0,
) -> RetrievalDataset:
    """Returns the data set that a path names; columns of tables are found by their names.

    Args:
        path: a folder or ZIP in BEIR layout; a table or a folder of documents; None for the
            bundled data set.
        queries: a table of queries with the ids of their right documents. Without it, documents
            that do not come in BEIR layout are asked for by sentences taken out of them.
        split: which judgements, in BEIR layout.
        with_titles: put titles before the texts.
        place: where such sentences are taken from.
        seed: of the choice of such sentences.

    Raises:
        ValueError: when it cannot be read; names the file and the line or row.
    """
    if path is None:
        if queries is not None:
            raise ValueError(f"queries {queries!r} came without documents; give their path too.")
        return sample_dataset(with_titles=with_titles)
    source = Path(path)
    is_zip = source.suffix.lower() == ".zip"
    is_beir = find_file(source, "corpus.jsonl") is not None
    if queries is None and is_zip:
        return dataset_from_zip(_read(source), source.name, split, with_titles)
    if queries is None and is_beir:
        return load_dataset(source, split, with_titles)
    corpus = _documents(source)
    if queries is None:
        return dataset_from_documents(corpus, place, seed, with_titles)
    asked = Path(queries)
    return dataset_from_tables(
        corpus, table_from_bytes(_read(asked), asked.name), None, with_titles
    )


def _documents(source: Path) -> Corpus:
    try:
        is_folder = source.is_dir()
    except OSError:  # A name too long for a file system; reading says so.
        is_folder = False
    if is_folder:
        return load_corpus(source)
    found = read_upload([(source.name, _read(source))])
    if isinstance(found, Corpus):
        return found
    return corpus_from_table(found, guess_document_columns(found))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except FileNotFoundError as error:
        raise ValueError(
            f"{file} does not exist; give a folder or ZIP in BEIR layout, or a table of documents."
        ) from error
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from error
