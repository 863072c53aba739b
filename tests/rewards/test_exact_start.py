import pytest

from pods_jax.errors import UserError
from pods_jax.rewards import check_gold, verify


@pytest.mark.parametrize(
    ("output", "right"),
    [
        ("723;5820", True),
        (" 723 ;", True),
        ("723", True),
        ("723;5;7", True),
        ("72;3", False),
        ("", False),
        (";723", False),
    ],
)
def test_only_what_comes_before_the_first_semicolon_counts(output, right):
    assert verify(output, "723", "exact_start") == right


@pytest.mark.parametrize("gold", ["", " ", "7;2"])
def test_a_gold_that_no_output_can_be_is_refused(gold):
    with pytest.raises(UserError, match="exact_start"):
        check_gold(gold, "exact_start")
