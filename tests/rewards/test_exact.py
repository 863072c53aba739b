from hypothesis import given
from hypothesis import strategies as st

from pods_jax.rewards import VERIFIERS, Verdict, verify
from pods_jax.rewards.verifiers import exact


def test_blanks_around_do_not_count_and_blanks_inside_do():
    assert exact.verify(" 1 2\n", "1 2") == Verdict(True, "1 2", "match")
    assert exact.verify("12", "1 2") == Verdict(False, "12", "mismatch")
    assert VERIFIERS["exact"].bounded


@given(st.text(), st.text())
def test_equal_texts_and_only_those_match(output, gold):
    assert verify(output, output, "exact")
    assert verify(output, gold, "exact") == (output.strip() == gold.strip())
