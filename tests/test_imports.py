"""Who may import whom: the table of the architecture, held by a walk over the syntax trees."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "lmk_viz"
SUBPACKAGES = ("probes", "training", "retrieval")
"""Parts of the core that are packages; the modules of one share a row of the table."""
CORE = sorted(
    file
    for pattern in ("*.py", *(f"{name}/*.py" for name in SUBPACKAGES))
    for file in PACKAGE.glob(pattern)
    if file.stem != "__main__"
)
FIGURES = sorted((PACKAGE / "figures").glob("*.py"))
UI = sorted((PACKAGE / "ui").glob("*.py"))
CLI = [PACKAGE / "__main__.py", *sorted((PACKAGE / "cli").glob("*.py"))]
SCRIPTS = [ROOT / "app.py", *sorted((ROOT / "pages").glob("*.py"))]
EVERYWHERE = [*CORE, *CLI, *FIGURES, *UI, *SCRIPTS]

NEVER_IN_CORE = {"streamlit", "plotly", "lmk_viz.ui", "lmk_viz.figures"}

ALLOWED = {
    "__init__": set(),
    "config": set(),
    "presets": {"lmk_viz.config"},
    "text": {"numpy", "regex", "sentencex"},
    "documents": {"numpy", "lmk_viz.config"},
    "corpus": {"numpy", "pandas", "lmk_viz.config", "lmk_viz.documents"},
    "landmarks": {"numpy", "lmk_viz.config", "lmk_viz.text"},
    "rope": {"numpy", "lmk_viz.config"},
    "similarity": {"numpy", "lmk_viz.config"},
    "projection": {*("numpy", "sklearn", "umap"), "lmk_viz.config"},
    "map_metrics": {*("numpy", "scipy"), *("lmk_viz.config", "lmk_viz.similarity")},
    "alignment": {
        *("numpy", "scipy", "sklearn"),
        *("lmk_viz.config", "lmk_viz.map_metrics", "lmk_viz.projection"),
    },
    "maps": {
        *("numpy", "pandas", "lmk_viz.alignment", "lmk_viz.config", "lmk_viz.map_metrics"),
    },
    "map_table": {
        "lmk_viz.files",
        *("numpy", "pandas", "lmk_viz.config", "lmk_viz.corpus", "lmk_viz.maps"),
    },
    "landmark_points": {*("numpy", "lmk_viz.config", "lmk_viz.documents")},
    "query_match": {
        *("numpy", "lmk_viz.config", "lmk_viz.landmarks", "lmk_viz.pooling"),
        "lmk_viz.similarity",
    },
    "corpus_sources": {
        *("numpy", "sklearn", "lmk_viz.corpus", "lmk_viz.documents"),
    },
    "bench_map": {
        *("numpy", "umap", "lmk_viz.alignment", "lmk_viz.config", "lmk_viz.projection"),
    },
    "bench_encode": {
        *("numpy", "sentence_transformers", "lmk_viz.config", "lmk_viz.documents"),
        *("lmk_viz.embedding", "lmk_viz.embedding_encoder", "lmk_viz.encoder"),
    },
    "pooling": {"numpy", "torch", "lmk_viz.config", "lmk_viz.landmarks"},
    "local_attention": {"numpy", "torch", "transformers", "lmk_viz.config"},
    "attention": {"numpy", "torch", "transformers", "lmk_viz.config", "lmk_viz.local_attention"},
    "attention_profile": {"numpy", "pandas", "lmk_viz.config"},
    "row_bins": {
        *("numpy", "torch", "lmk_viz.attention_profile", "lmk_viz.config", "lmk_viz.landmarks"),
    },
    "forecast": {"torch", "psutil", "lmk_viz.config", "lmk_viz.local_attention"},
    "model_facts": {
        *("numpy", "torch", "transformers", "lmk_viz.config", "lmk_viz.forecast"),
    },
    "bench": {
        *("numpy", "psutil", "torch", "transformers", "tokenizers", "lmk_viz.attention"),
        *("lmk_viz.config", "lmk_viz.encoder"),
    },
    "loading": {
        *("torch", "transformers", "huggingface_hub", "safetensors", "lmk_viz.adapters"),
        *("lmk_viz.config", "lmk_viz.presets", "lmk_viz.attention", "lmk_viz.local_attention"),
        "lmk_viz.latent_attention",
    },
    "adapters": {
        *("torch", "transformers", "safetensors", "lmk_viz.config"),
        *("lmk_viz.latent_attention", "lmk_viz.pooling"),
    },
    "family": {
        *("numpy", "torch", "lmk_viz.adapters", "lmk_viz.attention_profile", "lmk_viz.config"),
        *("lmk_viz.encoder", "lmk_viz.forecast", "lmk_viz.landmarks", "lmk_viz.loading"),
        *("lmk_viz.latent_attention", "lmk_viz.pooling", "lmk_viz.presets"),
    },
    "latent_attention": {"torch"},
    "encoder": {
        *("lmk_viz.family", "lmk_viz.latent_attention"),
        *("numpy", "torch", "transformers", "lmk_viz.config", "lmk_viz.text"),
        *("lmk_viz.landmarks", "lmk_viz.pooling", "lmk_viz.loading", "lmk_viz.forecast"),
        *("lmk_viz.attention", "lmk_viz.attention_profile", "lmk_viz.model_facts"),
        "lmk_viz.row_bins",
    },
    "files": set(),
    "embedding_encoder": {
        *("numpy", "lmk_viz.config", "lmk_viz.landmarks", "lmk_viz.pooling"),
    },
    "embedding_rows": {
        *("numpy", "lmk_viz.config", "lmk_viz.embedding_encoder", "lmk_viz.landmarks"),
        "lmk_viz.pooling",
    },
    "vector_files": {*("numpy", "pyarrow", "lmk_viz.embedding_rows", "lmk_viz.files")},
    "embedding_cache": {
        *("numpy", "lmk_viz.config", "lmk_viz.documents", "lmk_viz.embedding"),
        *("lmk_viz.embedding_encoder", "lmk_viz.embedding_rows", "lmk_viz.pooling"),
        "lmk_viz.vector_files",
    },
    "embedding": {
        *("lmk_viz.embedding_encoder", "lmk_viz.embedding_rows"),
        *("numpy", "pandas", "lmk_viz.config", "lmk_viz.corpus"),
        *("lmk_viz.documents", "lmk_viz.landmarks", "lmk_viz.pooling"),
    },
    "training": {
        "lmk_viz.files",
        *("numpy", "pandas", "torch", "transformers", "tokenizers", "accelerate", "peft"),
        *("safetensors", "lmk_viz.adapters", "lmk_viz.attention", "lmk_viz.config"),
        *("lmk_viz.documents", "lmk_viz.encoder"),
        *("lmk_viz.landmarks", "lmk_viz.latent_attention", "lmk_viz.loading", "lmk_viz.pooling"),
        *("lmk_viz.presets", "lmk_viz.similarity", "lmk_viz.text"),
    },
    "retrieval": {
        *("lmk_viz.embedding_encoder", "lmk_viz.corpus_sources"),
        *("numpy", "pandas", "bm25s", "ir_measures", "lmk_viz.config", "lmk_viz.corpus"),
        *("lmk_viz.documents", "lmk_viz.embedding", "lmk_viz.landmarks", "lmk_viz.pooling"),
        *("lmk_viz.similarity", "lmk_viz.text"),
    },
    "probes": {
        "lmk_viz.embedding_encoder",
        *("numpy", "pandas", "scipy", "lmk_viz.config", "lmk_viz.documents"),
        *("lmk_viz.embedding", "lmk_viz.landmarks", "lmk_viz.pooling", "lmk_viz.similarity"),
        "lmk_viz.text",
    },
}
"""What each module of the core may import besides the standard library. `encoder` stands in
no rows but those of `bench` and `bench_encode`, which measure it, `family`, which is one, and
`training`, which makes one: whatever else needs one takes it as an argument."""


def _imported(file: Path, node: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted names that a statement imports, relative ones made absolute."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, node.lineno) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            parts = file.relative_to(ROOT).with_suffix("").parts[: -node.level]
            module = ".".join([*parts, module] if module else parts)
        for alias in node.names:
            # `from lmk_viz import probes` names a module, not an attribute.
            name = f"{module}.{alias.name}"
            is_module = (ROOT / name.replace(".", "/")).with_suffix(".py").is_file()
            is_package = (ROOT / name.replace(".", "/")).is_dir()
            yield (name if is_module or is_package else module), node.lineno


def imports(file: Path, top_level: bool = False) -> list[tuple[str, int]]:
    """What a file imports, with the line; all of it, or what its import alone runs."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    return [found for node in nodes for found in _imported(file, node)]


def is_within(name: str, packages: set[str]) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_foreign(name: str) -> bool:
    """Whether a name is neither the standard library's nor ours."""
    top = name.partition(".")[0]
    return top not in sys.stdlib_module_names and top != "lmk_viz"


def strangers(file: Path, allowed: set[str]) -> list[str]:
    """Imports of a file outside the standard library that are not allowed."""
    return [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for name, line in imports(file)
        if (is_foreign(name) or name.startswith("lmk_viz")) and not is_within(name, allowed)
    ]


def intruders(file: Path, forbidden: set[str]) -> list[str]:
    """Imports of a file that are forbidden."""
    return [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for name, line in imports(file)
        if is_within(name, forbidden)
    ]


def streamlit_names(file: Path) -> set[str]:
    """Names of `st.…` that a file uses."""
    return {
        node.attr
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("st", "streamlit")
    }


def by_name(file: Path) -> str:
    return file.relative_to(ROOT).with_suffix("").as_posix()


def row_of(file: Path) -> str:
    """Name of a core module's row of the table."""
    return file.stem if file.parent == PACKAGE else file.parent.name


@pytest.mark.parametrize("file", CORE, ids=by_name)
def test_core_module_imports_neither_streamlit_nor_plotly_nor_what_builds_on_it(file):
    assert intruders(file, {*NEVER_IN_CORE, "lmk_viz.cli"}) == []


@pytest.mark.parametrize("file", CLI, ids=by_name)
def test_command_line_imports_neither_streamlit_nor_plotly_nor_pages(file):
    # It may write a figure to a file, which no page is needed for.
    assert intruders(file, NEVER_IN_CORE - {"lmk_viz.figures"}) == []


@pytest.mark.parametrize("file", CORE, ids=by_name)
def test_core_module_imports_only_what_its_row_of_the_table_allows(file):
    row = row_of(file)
    assert row in ALLOWED, f"give {file.name} a row in ALLOWED"
    own = {f"lmk_viz.{row}"} if row in SUBPACKAGES else set()
    assert strangers(file, ALLOWED[row] | own) == []


def test_table_has_no_row_for_a_module_that_is_gone():
    assert set(ALLOWED) - {row_of(file) for file in CORE} == set()


@pytest.mark.parametrize(
    "module", ["projection", "alignment", "map_metrics", "maps", "corpus_sources", "bench_map"]
)
def test_map_module_imports_its_heavy_packages_only_when_called(module):
    late = {"umap", "sklearn", "scipy", "numba", "datasets"}
    top = imports(PACKAGE / f"{module}.py", top_level=True)
    assert [name for name, _ in top if is_within(name, late)] == []


@pytest.mark.parametrize("file", FIGURES, ids=by_name)
def test_figures_import_neither_torch_nor_transformers_nor_streamlit_nor_pages(file):
    heavy = {"torch", "transformers", "streamlit", "umap", "sklearn", "lmk_viz.ui"}
    assert intruders(file, heavy) == []


@pytest.mark.parametrize("file", UI, ids=by_name)
def test_ui_imports_neither_torch_nor_transformers_nor_umap(file):
    assert intruders(file, {"torch", "transformers", "umap", "sklearn", "numba"}) == []


@pytest.mark.parametrize("file", SCRIPTS, ids=by_name)
def test_pages_import_only_streamlit_ui_figures_and_settings(file):
    allowed = {"streamlit", "lmk_viz.ui", "lmk_viz.figures", "lmk_viz.config"}
    assert strangers(file, allowed) == []


def test_streamlit_is_imported_by_ui_and_pages_alone():
    users = {by_name(f) for f in EVERYWHERE if intruders(f, {"streamlit"})}
    assert users - {by_name(f) for f in [*UI, *SCRIPTS]} == set()


def test_plotly_is_imported_by_figures_and_ui_alone():
    users = {by_name(f) for f in EVERYWHERE if intruders(f, {"plotly"})}
    assert users - {by_name(f) for f in [*UI, *FIGURES]} == set()


@pytest.mark.parametrize("file", SCRIPTS, ids=by_name)
def test_page_keeps_neither_session_state_nor_a_cache_of_its_own(file):
    own = {n for n in streamlit_names(file) if n in ("session_state", "query_params")}
    own |= {n for n in streamlit_names(file) if n.startswith("cache")}
    assert own == set()


@pytest.mark.parametrize("file", [f for f in UI if f.stem != "cache"], ids=by_name)
def test_streamlit_caches_are_declared_in_one_module(file):
    assert {name for name in streamlit_names(file) if name.startswith("cache_")} == set()


def run_python(code: str) -> str:
    """What Python prints for some code in a fresh process at the root of the project."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_whole_core_loads_neither_streamlit_nor_plotly():
    dotted = (".".join(f.relative_to(ROOT).with_suffix("").parts) for f in CORE)
    names = [name.removesuffix(".__init__") for name in dotted]
    code = (
        "import importlib, sys\n"
        f"for name in {names!r}: importlib.import_module(name)\n"
        "print([n for n in ('streamlit', 'plotly') if n in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, lmk_viz\n"
        "heavy = ('torch', 'transformers', 'numpy', 'pandas', 'streamlit', 'plotly')\n"
        "print([n for n in heavy if n in sys.modules])"
    )
    assert run_python(code) == "[]"


def test_command_line_shows_its_help_without_loading_torch():
    code = "import sys, lmk_viz.__main__\nprint([n for n in ('torch', 'umap') if n in sys.modules])"
    assert run_python(code) == "[]"
