"""The tool that makes mistakes makes one at a time, and all of its kinds."""

import ast
from pathlib import Path

import pytest
import score
from mutants import mutants

ROOT = Path(__file__).parents[2]


def after(source):
    return [m.after for m in mutants(source)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a < b", ["a <= b"]),
        ("a is not None", ["a is None"]),
        ("a + b * c", ["a - b * c", "b / c"]),
        ("x = a and not b", ["a or not b", "b"]),
        ("x = a if b else c", ["c if b else a"]),
        ("f(1, 0.5, True)", ["pass", "2", "1.5", "False"]),
        ("x = jnp.maximum(a, min(b))", ["jnp.minimum", "max"]),
        ("total += x", ["pass"]),
    ],
)
def test_each_kind_of_mistake(source, expected):
    assert after(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring of 3 lines."""',
        "x: tuple[1, 2]",
        "@decorated(maxsize=3)\ndef f() -> 3: pass",
        'raise ValueError(f"{a + 1}")',
        'x = f"{a:.3f}" + "text"',
        "_log.warning(name)",
        "import os",
    ],
)
def test_what_computes_nothing_has_none(source):
    assert after(source) == []


def test_a_mutant_differs_in_its_place_only():
    """Whatever characters and lines come before it."""
    source = 'é = "ü"; y = (a  # a comment\n    < b)  # another\n'
    (mutant,) = mutants(source)
    assert mutant.source == 'é = "ü"; y = ((a <= b))  # another\n'
    assert (mutant.line, mutant.before) == (1, "a # a comment < b")


def test_every_mutant_of_the_package_is_a_program():
    for file in (ROOT / "pods_jax" / "selection").glob("*.py"):
        source = file.read_text()
        for mutant in mutants(source):
            assert ast.dump(ast.parse(mutant.source)) != ast.dump(ast.parse(source)), mutant


def test_a_sample_is_spread_over_the_files_and_repeats():
    folder = ROOT / "pods_jax" / "selection"
    chosen = score.sample([folder], 30, seed=1)
    assert chosen == score.sample([folder], 30, seed=1) != score.sample([folder], 30, seed=2)
    counts = [sum(file == other for file, _ in chosen) for other in {file for file, _ in chosen}]
    assert len(counts) > 4
    assert sum(counts) == len({(file, m.source) for file, m in chosen}) == 30


@pytest.fixture
def checkout(tmp_path):
    """A checkout of one small file with one test."""
    for folder in ("pods_jax", "tests"):
        (tmp_path / folder / "part").mkdir(parents=True)
    (tmp_path / "pods_jax" / "part" / "small.py").write_text("def larger(a, b):\n    return max(a, b) + 1 > 3\n")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    test = "from pods_jax.part.small import larger\ndef test_larger():\n    assert larger(1, 9)\n"
    (tmp_path / "tests" / "part" / "test_small.py").write_text(test)
    return tmp_path


def test_a_mutant_is_noticed_if_a_test_fails(checkout):
    file = Path("pods_jax", "part", "small.py")
    source = (checkout / file).read_text()
    tests = score.tests_of(checkout, file)
    assert tests == [("tests/part/test_small.py",), ("tests/part", "--ignore=tests/part/test_small.py")]
    chosen = [m for m in mutants(source) if m.after in ("min", "4")]
    found = {m.after: score.is_noticed(checkout, file, m, tests[:1]) for m in chosen}
    assert found == {"min": True, "4": False}
    assert (checkout / file).read_text() == source


def test_tests_that_fail_by_themselves_measure_nothing(checkout):
    (checkout / "pods_jax" / "part" / "small.py").unlink()
    with pytest.raises(SystemExit, match="fails without any mutant"):
        score.limit_s(checkout, ("tests/part",))


def test_tests_that_do_not_end_have_noticed(checkout):
    assert score.fails(checkout, ("tests/part",), 0.01)
