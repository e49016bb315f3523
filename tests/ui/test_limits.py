"""What an operator may fix for all users."""

import pytest

from lmk_viz.ui.limits import Limits


def test_empty_environment_gives_the_defaults():
    assert Limits.from_environment({}) == Limits()


def test_encoders_are_split_at_commas_and_trimmed():
    found = Limits.from_environment({"LMK_VIZ_ENCODERS": " default, acme/one ,,"})
    assert found.encoders == ("default", "acme/one")


@pytest.mark.parametrize("value", ["", " , "], ids=["empty", "comma"])
def test_empty_list_of_encoders_allows_any(value):
    assert Limits.from_environment({"LMK_VIZ_ENCODERS": value}).encoders == ()


def test_device_is_taken_over():
    assert Limits.from_environment({"LMK_VIZ_DEVICE": "cuda:1"}).device == "cuda:1"


@pytest.mark.parametrize(
    ("name", "field", "lowest"),
    [("LMK_VIZ_MAX_LENGTH", "max_length", 16), ("LMK_VIZ_MAX_DOCUMENTS", "max_documents", 1)],
)
def test_number_is_taken_down_to_its_lowest_value(name, field, lowest):
    assert getattr(Limits.from_environment({name: str(lowest)}), field) == lowest


@pytest.mark.parametrize(
    ("name", "value", "lowest"),
    [
        ("LMK_VIZ_MAX_LENGTH", "15", 16),
        ("LMK_VIZ_MAX_LENGTH", "many", 16),
        ("LMK_VIZ_MAX_LENGTH", "", 16),
        ("LMK_VIZ_MAX_LENGTH", "1e3", 16),
        ("LMK_VIZ_MAX_DOCUMENTS", "0", 1),
        ("LMK_VIZ_MAX_DOCUMENTS", "-5", 1),
        ("LMK_VIZ_MAX_DOCUMENTS", "2.5", 1),
    ],
)
def test_unusable_number_is_named_with_what_is_allowed(name, value, lowest):
    message = f"{name} is {value!r}; allowed: a whole number of {lowest} or more"
    with pytest.raises(ValueError, match=message):
        Limits.from_environment({name: value})


def test_memory_is_given_in_gibibytes():
    assert Limits.from_environment({"LMK_VIZ_MEMORY_GB": "1.5"}).memory_bytes == 3 * 2**29


@pytest.mark.parametrize("value", ["0", "-1", "much", "", "nan", "inf"])
def test_unusable_memory_is_named_with_what_is_allowed(value):
    message = f"LMK_VIZ_MEMORY_GB is {value!r}; allowed: a number over 0"
    with pytest.raises(ValueError, match=message):
        Limits.from_environment({"LMK_VIZ_MEMORY_GB": value})


def test_real_environment_is_read_when_none_is_given(monkeypatch):
    monkeypatch.setenv("LMK_VIZ_MAX_DOCUMENTS", "7")
    assert Limits.from_environment().max_documents == 7
