from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.errors import UserError
from pods_jax.rewards import VERIFIERS, Verdict
from pods_jax.rewards.verifiers.filling import verify

FORMULAS = ["H2O", "Na2CrO4", "Ca(OH)2", "Fe3+", "CH3COOH", "CuSO4.5H2O"]
SIDES = st.dictionaries(st.sampled_from(FORMULAS), st.integers(1, 9), min_size=1, max_size=4)


def written(side: dict[str, int | Fraction], sign: str = " + ") -> str:
    return sign.join(f"{count if count != 1 else ''}{formula}" for formula, count in side.items())


@given(SIDES, SIDES, st.integers(1, 4), st.sampled_from([" = ", " -> ", "→", r" \rightarrow ", " ⇌ ", "=", " --> "]))
def test_order_scale_and_arrow_do_not_count(left, right, factor, arrow):
    gold = f"{written(left)} = {written(right)}"
    turned = [dict(reversed(side.items())) for side in (left, right)]
    scaled = [{formula: factor * count for formula, count in side.items()} for side in turned]
    halved = [{formula: Fraction(count, 2) for formula, count in side.items()} for side in turned]
    for sides in (turned, scaled, halved):
        assert verify(rf"\boxed{{{written(sides[0])}{arrow}{written(sides[1])}}}", gold).correct, sides


@given(SIDES, SIDES, st.sampled_from(FORMULAS))
def test_coefficients_species_and_direction_count(left, right, formula):
    gold = f"{written(left)} = {written(right)}"
    more = left | {formula: left.get(formula, 0) + 1}
    assert not verify(f"{written(more)} = {written(right)}", gold).correct
    assert verify(f"{written(right)} = {written(left)}", gold).correct == (left == right)


@pytest.mark.parametrize(
    ("output", "gold"),
    [
        ("2H₂(g) + O₂(g) ⟶ 2H₂O(l)", "2H2 + O2 = 2H2O"),
        (r"$$\ce{2H2 + O2 -> 2H2O}$$", "2H2 + O2 = 2H2O"),
        ("The balanced chemical equation is:\n\n2 H2 + O2 = 2 H2O\n\nBoth sides agree.", "2H2 + O2 = 2H2O"),
        (r"\boxed{2\text{H}_2 + \text{O}_2 \rightarrow 2\text{H}_2\text{O}}", "2H2 + O2 = 2H2O"),
        ("H2O + H2O = 2H2 + O2", "2H2O = 2H2 + O2"),
        ("Mg²⁺ + 2OH⁻ → Mg(OH)2", "Mg{+2} + 2OH{-} = Mg(OH)2"),
        ("CuSO4·5H2O = CuSO4 + 5H2O", "CuSO4*5H2O = CuSO4 + 5H2O"),
        (r"\text{CuSO}_{4} \cdot 5\text{H}_2\text{O} = CuSO4 + 5H2O", "CuSO4*5H2O = CuSO4 + 5H2O"),
        ("CuSO₄·H₂O → CuSO₄ + H₂O", "CuSO4*H2O = CuSO4 + H2O"),
        (r"\boxed{CuSO_4 \cdot \text{H}_2\text{O} \to CuSO_4 + H_2O}", "CuSO4.H2O = CuSO4 + H2O"),
        (r"2 \cdot H2 + O2 = 2·H2O", "2H2 + O2 = 2H2O"),
        ("**2H2 + O2 = 2H2O**", "2H2 + O2 = 2H2O"),
        ("FeSO4·(NH4)2SO4 = FeSO4 + (NH4)2SO4", "FeSO4.(NH4)2SO4 = FeSO4 + (NH4)2SO4"),
        ("2*H2O*(l) = 2*H2*(g) + *O2*(g)", "2H2O = 2H2 + O2"),
        ("MnO4− + 8H+ + 5e− → Mn2+ + 4H2O", "MnO4- + 8H+ + 5e- = Mn2+ + 4H2O"),
        ("MnO4– + 8H+ + 5e– -> Mn2+ + 4H2O", "MnO4- + 8H+ + 5e- = Mn2+ + 4H2O"),
        (r"2KClO3 \xrightarrow{\text{MnO}_2, \Delta} 2KCl + 3O2", "2KClO3 = 2KCl + 3O2"),
        (r"2KClO3 \xrightarrow[\Delta]{MnO2} 2KCl + 3O2", "2KClO3 = 2KCl + 3O2"),
        (r"N2 + 3H2 \xrightleftharpoons{400 °C = 673 K} 2NH3", "N2 + 3H2 = 2NH3"),
        (r"2KClO3 \xlongequal{MnO2} 2KCl + 3O2", "2KClO3 = 2KCl + 3O2"),
        ("Sodium  Chloride.", "sodium chloride"),
        (r"\boxed{H2 + \frac{1}{2}O2 = H2O}", "2H2 + O2 = 2H2O"),
        (r"\boxed{H2 + \frac12 O2 = H2O}", "2H2 + O2 = 2H2O"),
        (r"\boxed{H_2 + \dfrac{1}{2}\text{O}_2 \rightarrow H_2O}", "2H2 + O2 = 2H2O"),
        (r"\boxed{\frac{13}{2}O2 + C4H10 = 4CO2 + 5H2O}", "2C4H10 + 13O2 = 8CO2 + 10H2O"),
        ("H2 + ½O2 = H2O", "2H2 + O2 = 2H2O"),
    ],
)
def test_notations(output, gold):
    assert verify(output, gold).correct


@pytest.mark.parametrize(
    ("output", "reason"),
    [("H2 + O2 = H2O", "mismatch"), ("2H2 + O2", "unparsed"), ("", "no answer"), ("two lines\nof text", "no answer"),
     ("H2 = O2 = H2O", "unparsed"), ("1. 2H2 + O2 = 2H2O", "unparsed"), (r"2H2 + O2 \xrightarrow{ 2H2O", "unparsed"),
     ("2H2·O2 = 2H2O", "mismatch"), ("0H2 + O2 = 2H2O", "unparsed"), ("1/0H2 + O2 = 2H2O", "unparsed"),
     ("9" * 5000 + "H2 + O2 = 2H2O", "unparsed"), (r"\boxed{H2 + \frac{1}{3}O2 = H2O}", "mismatch"),
     (r"\boxed{H2 + \frac{1}{0}O2 = H2O}", "unparsed")],
)  # fmt: skip
def test_what_is_refused(output, reason):
    assert verify(output, "2H2 + O2 = 2H2O").reason == reason


@given(st.text(st.sampled_from("H2O+-=> ()/{}^_\\.·"), max_size=60) | st.text())
def test_no_output_raises(output):
    assert isinstance(verify(output, "2H2 + O2 = 2H2O"), Verdict)


@pytest.mark.parametrize(("gold", "message"), [(" ", "empty"), ("H2 + = O2", "not a chemical equation")])
def test_golds_that_cannot_be_used(gold, message):
    with pytest.raises(UserError, match=message):
        verify("H2 = O2", gold)


def test_sciknoweval_takes_the_rule_of_the_gold():
    both = VERIFIERS["sciknoweval"]
    assert both.verify("4H2 + 2O2 = 4H2O", "2H2 + O2 = 2H2O").correct
    assert both.verify("Answer: B", "B").correct
    assert not both.verify("Answer: Boron", "B").correct
    with pytest.raises(UserError, match="choice: the gold"):
        both.check("Boron")
