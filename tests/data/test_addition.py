"""The embedded task against Python's own arithmetic."""

import re

import numpy as np
import pytest

from pods_jax.data.addition import AdditionOptions, demonstrations, load_addition
from pods_jax.errors import UserError
from pods_jax.rewards import verify


def read(prompt, base):
    """The operands of a prompt, by the format's definition."""
    digits = [int(d) for d in prompt[:-1]]
    return (sum(d * base**i for i, d in enumerate(part)) for part in (digits[0::2], digits[1::2]))


def value(answer, base):
    return sum(int(d) * base**i for i, d in enumerate(answer))


def carries(a, b, base, digits):
    return sum(a % base**i + b % base**i >= base**i for i in range(1, digits + 1))


@pytest.mark.parametrize(("base", "digits"), [(10, 5), (5, 3), (2, 4)])
def test_golds_and_kinds(base, digits):
    options = {"base": base, "digits": digits, "num_train": 100, "num_test": 50, "unseen_fraction": 0.3}
    data = load_addition(None, options, seed=3)
    for e in data.train + data.test:
        a, b = read(e.prompt, base)
        if e.prompt[-1] == "=":
            assert value(e.gold, base) == a + b
            assert len(e.gold) == digits + (a + b >= base**digits)
            third = 3 * carries(a, b, base, digits) // (digits + 1)
            assert e.kind == ("easy", "medium", "hard")[min(third, 2)]
        else:
            assert (value(e.gold, base), len(e.gold), e.kind) == ((a - b) % base**digits, digits, "unseen")


def test_a_share_of_the_sums_has_no_carry():
    options = {"base": 10, "digits": 5, "num_train": 2000, "num_test": 0, "unseen_fraction": 0.4}
    for share in (0.0, 0.5):
        data = load_addition(None, options | {"no_carry_fraction": share}, seed=1)
        sums = [e for e in data.train if e.kind != "unseen"]
        plain = np.mean([carries(*read(e.prompt, 10), 10, 5) == 0 for e in sums])
        by_chance = 0.55**5  # of two digits, 55 in 100 pairs add up to less than 10
        assert abs(len(sums) / 2000 - 0.6) < 0.04
        assert abs(plain - (share + (1 - share) * by_chance)) < 0.05


@pytest.mark.parametrize("share", [1.0, -0.1])
def test_a_share_without_carries_is_a_share(share):
    with pytest.raises(UserError, match=r"no_carry_fraction must lie in \[0, 1\)"):
        load_addition(None, {"no_carry_fraction": share}, seed=0)


def test_problems_are_distinct_and_test_is_not_trained_on():
    data = load_addition(None, {"base": 3, "digits": 3, "num_train": 500, "num_test": 100}, seed=0)
    prompts = [e.prompt for e in data.train + data.test]
    assert len(set(prompts)) == len(prompts) == 600
    assert load_addition(None, {"base": 3, "digits": 3, "num_train": 500, "num_test": 100}, seed=0) != data  # a closure
    assert load_addition(None, {"base": 3, "digits": 3, "num_train": 500, "num_test": 100}, seed=0).test == data.test


def test_the_teacher_is_right_as_often_as_it_drops_no_carry():
    o = AdditionOptions(base=10, digits=3, carry_prob=0.3)
    right, expected = [], []
    for prompt, answer in demonstrations(o, np.random.default_rng(0), 6000):
        a, b = read(prompt, 10)
        right.append(value(answer, 10) == a + b)
        expected.append(0.3 ** carries(a, b, 10, 3))
    assert np.mean(right) == pytest.approx(np.mean(expected), abs=0.02)


def test_a_perfect_teacher_is_always_right_and_never_subtracts():
    for prompt, answer in demonstrations(AdditionOptions(carry_prob=1.0), np.random.default_rng(0), 200):
        a, b = read(prompt, 5)
        assert prompt[-1] == "="
        assert value(answer, 5) == a + b


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("x", {}, "nothing to read"),
        (None, {"digit": 3}, "did you mean 'digits'"),
        (None, {"base": 11}, "base <= 10"),
        (None, {"base": 2, "digits": 1, "num_train": 4, "num_test": 1}, "lacks 5 problems"),
    ],
)
def test_bad_options(path, options, message):
    with pytest.raises(UserError, match=message):
        load_addition(path, options, 0)


@pytest.mark.parametrize("base", [3, 10])
def test_a_person_can_read_problems_and_answers(base):
    options = {"base": base, "digits": 3, "num_train": 50, "num_test": 0, "unseen_fraction": 0.3}
    dataset = load_addition(None, options, 0)
    for example in dataset.train:
        line = dataset.reads(example.prompt, example.gold)
        a, operation, b, c = re.match(r"(\d+) ([+-]) (\d+).* = (\d+)", line).groups()
        a, b, c = (int(x, base) for x in (a, b, c))
        assert c == (a + b if operation == "+" else (a - b) % base**3)
        assert ("in base 3" in line) == (base == 3)


def test_what_is_no_number_is_told():
    reads = load_addition(None, {"base": 10, "digits": 3, "num_train": 5, "num_test": 0}, 0).reads
    explained = "(digits in turn, last ones first)"
    assert reads("342012=", "723") == f"123 + 204 = 327 {explained}"
    assert reads("342012~", "7=3") == f"123 - 204 modulo 10^3 = ?, since '7=3' is no number {explained}"


def test_chatter_follows_the_answer_and_no_verdict_sees_it():
    options = {"base": 10, "digits": 3, "carry_prob": 1.0, "num_train": 30, "num_test": 0, "chatter": 5}
    dataset = load_addition(None, options, 0)
    assert dataset.task == "exact_start"
    assert set(dataset.alphabet) == set("0123456789=~;")
    pairs = dataset.demonstrate(np.random.default_rng(0), 300)
    plain = load_addition(None, options | {"chatter": 0}, 0)
    assert (plain.task, plain.train) == ("exact", dataset.train)
    assert [(p, o.partition(";")[0]) for p, o in pairs] == plain.demonstrate(np.random.default_rng(0), 300)
    chatter = [output.partition(";")[2] for _, output in pairs]
    assert {len(text) for text in chatter} == {5}
    assert min(np.bincount([int(c) for c in "".join(chatter)], minlength=10)) > 100  # of 1,500
    gold = dataset.train[0].gold
    assert all(verify(gold + tail, gold, dataset.task) for tail in ("", ";", ";12345"))
    assert dataset.reads("342012=", "723;58204") == plain.reads("342012=", "723")
