"""What the retrieval page gives away: numbers by system and by query, and the Python lines."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lmk_viz.config import PoolingMode
from lmk_viz.figures import evaluation as figures
from lmk_viz.retrieval.dataset import RetrievalDataset
from lmk_viz.retrieval.scores import Evaluation
from lmk_viz.ui import panels, state
from lmk_viz.ui.controls import Inputs
from lmk_viz.ui.retrieval_code import dataset_code
from lmk_viz.ui.retrieval_runs import DEPTH, METRICS

__all__ = ["query_frame", "show_downloads"]


def show_downloads(
    evaluation: Evaluation,
    dataset: RetrievalDataset,
    inputs: Inputs,
    encoder: Any,
    modes: Sequence[PoolingMode],
) -> None:
    """Draws what a reader takes away."""
    rows = [row.to_dict() for row in evaluation.systems]
    result = evaluation.to_dict()
    result["per_query"] = query_frame(evaluation, dataset).to_dict("records")
    panels.show_downloads(
        "retrieval",
        _flat_frame(rows),
        _plain(result),
        figures.scores_figure(rows, state.SEARCH_METRIC.get(), "Which finds the right document?"),
        _code(evaluation, dataset, inputs, encoder, modes),
    )


def query_frame(evaluation: Evaluation, dataset: RetrievalDataset) -> pd.DataFrame:
    """Returns one row a query: where its evidence stands, and the right document's rank."""
    frame = pd.DataFrame(
        {
            "id": evaluation.query_ids,
            "query": [dataset.queries[query] for query in evaluation.query_ids],
            "depth": [dataset.depth.get(query) for query in evaluation.query_ids],
            "tokens": evaluation.lengths,
        }
    )
    for row in evaluation.systems:
        ranks = [row.rank_of(query, dataset.qrels[query]) for query in evaluation.query_ids]
        frame[f"rank_{row.name}"] = pd.array(ranks, dtype="Int64")
    return frame


def _flat_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Returns one row a system and group of queries, all its numbers in columns."""
    table: list[dict[str, Any]] = []
    for row in rows:
        groups = [{"group": "all", "queries": None, **row}, *row["by_depth"], *row["by_length"]]
        kinds = ["all", *["depth"] * len(row["by_depth"]), *["length"] * len(row["by_length"])]
        for kind, group in zip(kinds, groups, strict=True):
            flat = {"pooling": row["pooling"], "by": kind, "group": group["group"]}
            for name in METRICS:
                flat |= {key: group[key] for key in (name, f"{name}_low", f"{name}_high")}
            flat |= {f"difference_{k}": v for k, v in (group["difference"] or {}).items()}
            if kind == "all":
                flat |= {f"index_{k}": v for k, v in (row["index"] or {}).items()}
            table.append(flat)
    return pd.DataFrame(table)


def _plain(value: Any) -> Any:
    """Returns JSON types, with None for what is missing in a table."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return None if value is pd.NA or (isinstance(value, float) and value != value) else value


def _code(
    evaluation: Evaluation,
    dataset: RetrievalDataset,
    inputs: Inputs,
    encoder: Any,
    modes: Sequence[PoolingMode],
) -> str:
    """Returns Python that gives the same numbers."""
    imports, load = dataset_code(dataset)
    kinds = [row.name for row in evaluation.rows if row.name not in list(PoolingMode)]
    limit = "" if inputs.max_length == encoder.max_length else f"max_length={inputs.max_length}, "
    return "\n".join(
        [
            "from lmk_viz.config import ChunkingConfig",
            "from lmk_viz.encoder import Encoder",
            "from lmk_viz.pooling import parse_poolings",
            *imports,
            "from lmk_viz.retrieval.evaluate import evaluate",
            "",
            f"encoder = Encoder.from_pretrained({inputs.encoder.name!r})",
            *load,
            "result = evaluate(",
            "    encoder,",
            "    dataset,",
            f'    parse_poolings("{",".join(mode.value for mode in modes)}"),',
            f"    {panels.chunking_code(inputs.chunking)},",
            f"    {limit}baseline={evaluation.baseline!r},",
            f"    multi_vector={kinds!r},",
            f"    ranking_depth={DEPTH},",
            ")",
            "for row in result.systems:",
            "    print(row.name, row.overall.to_dict())",
        ]
    )
