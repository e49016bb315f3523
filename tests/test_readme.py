"""What the README shows is what happens."""

import doctest
import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_every_python_line_of_the_readme_prints_what_it_says():
    failed, tried = doctest.testfile(str(README), module_relative=False)
    assert tried >= 6
    assert failed == 0


def test_every_verb_of_the_readme_is_a_verb(capsys):
    from lmk_viz.__main__ import main

    verbs = set(re.findall(r"python -m lmk_viz (\w+)", README.read_text(encoding="utf-8")))
    assert verbs
    for verb in sorted(verbs):
        assert main([verb, "--help"]) == 0, verb
    capsys.readouterr()
