import json

import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import RewardPool, check_gold, verify
from pods_jax.rewards.verifiers import math_tolerance


def gold(*answers, **fields) -> str:
    return json.dumps({"answers": answers} | fields)


@pytest.mark.parametrize(
    ("expected", "answer", "correct"),
    [
        (gold("1.6", relative=0.01), "1.6", True),
        (gold("1.6", relative=0.01), "1.615", True),
        (gold("1.6", relative=0.01), "1.584", True),
        (gold("1.6", relative=0.01), "1.617", False),
        (gold("1.6", relative=0.01), "-1.6", False),
        (gold("1.6", relative=0.01), r"1.61 \text{ cm}", True),
        (gold("1.6", relative=0.01), r"\frac{8.04}{5}", True),
        (gold("1.6", relative=0.01), "x = 1.61", True),
        (gold("1.6", relative=0.01), "1.6, 1.61", False),
        (gold("1.6", relative=0.01), "1.6 x", False),
        (gold("4.5e33", relative=0.01), r"4.47 \times 10^{33}", True),
        (gold("4.5e33", relative=0.01), r"4.47 \times 10^{32}", False),
        (gold("0", relative=0.01), "0.001", False),
        (gold(r"\sqrt{2}", relative=0.01), "1.41", True),
        (gold(r"\sqrt{2}", relative=0.01), "1.43", False),
        (gold("x^2", relative=0.01), "1.001 x^2", False),
        (gold("1", absolute=[0.1]), "1.1", True),
        (gold("1", absolute=[0.1]), "0.9", True),
        (gold("1", absolute=[0.1]), "1.11", False),
        (gold("1", absolute=[0.1], unit=r"\text{ cm}"), r"1.1 \text{ cm}", True),
        (gold("1", absolute=[0.1], unit=r"\text{ cm}"), r"1.1 \text{ kg}", False),
        (gold("1", "2", absolute=[0.1, 0.01]), "2.01, 1.1", True),
        (gold("1", "2", absolute=[0.1, 0.01]), "2.1, 1.1", False),
        (gold("1", "2", absolute=[0.1, 0.01]), "1.1", False),
        (gold("1", "2"), "2, 1", True),
        (gold("1", "2"), "2.001, 1", False),
        (gold("(0, 1)", absolute=[0.1]), "(0, 1)", True),
        (gold("(0, 1)", absolute=[0.1]), "(0, 1.05)", False),
        ("1.6", "1.61", False),
        ("1.6", "1.60", True),
    ],
)
def test_verdicts(expected, answer, correct):
    assert math_tolerance.verify(rf"So \boxed{{{answer}}}.", expected).correct == correct


def test_the_exact_task_stays_exact_and_workers_agree():
    assert not verify(r"\boxed{1.61}", "1.6", "math")
    with RewardPool(num_workers=1) as pool:
        outputs = [r"\boxed{1.61}", r"\boxed{1.7}", "1.6", r"\boxed{1.6}"]
        verdicts = pool.score(outputs, [gold("1.6", relative=0.01)] * 4, "math_tolerance")
    assert [verdict.correct for verdict in verdicts] == [True, False, False, True]


@pytest.mark.parametrize(
    "bad",
    [gold(), gold(5), gold("1", absolute=[0.1, 0.2]), gold("1", relative=-1), gold("1", tolerance=1), '{"answers"'],
)
def test_golds_of_another_form_are_user_errors(bad):
    with pytest.raises(UserError, match="math_tolerance: the gold"):
        check_gold(bad, "math_tolerance")
