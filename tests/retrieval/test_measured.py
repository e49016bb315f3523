import json

import numpy as np
import pytest

from lmk_viz.config import PoolingMode
from lmk_viz.retrieval.extrapolation import Extrapolation, ExtrapolationRow
from lmk_viz.retrieval.measured import EXTRAPOLATION_FILE, load_measured


def row(mode, multiple):
    return ExtrapolationRow(
        mode,
        multiple,
        True,
        {"ndcg@10": np.asarray([1.0, 0.5]), "recall@1": np.asarray([1.0, 0.0])},
        np.asarray([0.1, 0.9]),
        254.0,
        1.0,
        (0.5,),
    )


def write(folder, text):
    file = folder / EXTRAPOLATION_FILE
    file.parent.mkdir()
    file.write_text(text)


def test_what_was_measured_is_read_as_it_was_written(tmp_path):
    rows = (row(PoolingMode.CLS, 1), row(PoolingMode.LANDMARK, 1))
    settings = {"seed": 0, "length": 256, "documents": 2}
    measured = Extrapolation(settings, PoolingMode.LANDMARK, rows).to_dict()
    write(tmp_path, json.dumps(measured))
    assert load_measured(tmp_path) == measured


def test_an_encoder_without_measurements_has_none(tmp_path):
    assert load_measured(tmp_path) is None
    assert load_measured("somebody/some-model") is None


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"rows": [{}], "settings": {}}', '{"rows": [3], "settings": {}}'],
    ids=["no JSON", "a list", "a row without fields", "a row that is none"],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, text):
    write(tmp_path, text)
    with pytest.raises(ValueError, match=r"extrapolation\.json cannot be read"):
        load_measured(tmp_path)
