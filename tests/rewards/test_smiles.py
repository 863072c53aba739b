import sys

import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, check_gold, verify
from pods_jax.rewards.verifiers import smiles

needs_rdkit = pytest.mark.usefixtures("rdkit")


@pytest.fixture(scope="module")
def rdkit():
    return pytest.importorskip("rdkit", reason="the extra 'chemistry' is not installed")


@pytest.mark.parametrize(
    "text", ["CCO", "OCC", "CC(=O)O", "C=O", "c1ccccc1", "C[C@H](N)C(=O)O", "[Na+].[Cl-]", "C%10CC%10"]
)
def test_smiles_are_known_by_their_form(text):
    assert smiles.looks_like_smiles(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "B",
        "Yes",
        "No.",
        "2H2 + O2 = 2H2O",
        "C+O2=CO2",
        "N2O4=2NO2",
        "H2O2=H2O+O2",
        "CO2",
        "C(",
        "ethanol",
        "12",
        "C C",
    ],
)
def test_other_golds_are_not(text):
    assert not smiles.looks_like_smiles(text)


@needs_rdkit
@pytest.mark.parametrize(
    ("output", "gold", "correct"),
    [
        (r"\boxed{OCC}", "CCO", True),
        (r"\boxed{\text{OCC}}", "CCO", True),
        ("OCC", "CCO", True),
        ("Answer: `C(O)C`", "CCO", True),
        (r"\boxed{C1=CC=CC=C1}", "c1ccccc1", True),
        (r"\boxed{C[C@@H](N)C(=O)O}", "C[C@H](N)C(=O)O", False),
        (r"\boxed{CCC}", "CCO", False),
        (r"\boxed{CC=O}", "CCO", False),
        (r"\boxed{C(C}", "CCO", False),
        (r"\boxed{CCO OCC}", "CCO", False),
        (r"\boxed{}", "CCO", False),
        (r"\boxed{CCO.CCC}", "CCO", False),
        ("It is made of C and O", "CCO", False),
        (r"\boxed{" + "C" * 600 + "}", "CCO", False),
    ],
)
def test_molecules_are_compared_as_such(output, gold, correct):
    for task in ("smiles", "sciknoweval"):
        assert verify(output, gold, task) == correct


@needs_rdkit
def test_golds_are_checked_and_hostile_answers_cost_nothing_else():
    check_gold("CC(=O)O", "sciknoweval")
    with pytest.raises(UserError, match="smiles: the gold 'C\\(C\\)\\(C\\)\\(C\\)\\(C\\)C' is no molecule"):
        check_gold("C(C)(C)(C)(C)C", "smiles")
    with RewardPool(num_workers=1) as pool:
        outputs = ["\ud800", "((((", "[" * 400, "C1" * 250, "B", "\0"]
        verdicts = pool.score([rf"\boxed{{{output}}}" for output in outputs], ["CCO"] * 6, "smiles")
    assert not any(verdict.correct or verdict.reason == "crashed" for verdict in verdicts)


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    smiles._rdkit.cache_clear()
    with pytest.raises(UserError, match=r"pip install -e '.\[chemistry\]'"):
        check_gold("CCO" * 7, "sciknoweval")
    assert verify("Answer: B", "B", "sciknoweval")
    smiles._rdkit.cache_clear()
