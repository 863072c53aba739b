"""A mistake of a user's environment is one line that names it."""

import numpy as np
import pytest

from pods_jax import environments
from pods_jax.data import Example
from pods_jax.environments import ENVIRONMENTS, Step, option_problems, register
from pods_jax.errors import UserError

EXAMPLE = Example("1+1=", "2")


@register("clay")
class Clay:
    """Does what its options say."""

    def __init__(self, returned=("", 0.0, True), at_reset=None, broken=""):
        self._returned = returned
        self._at_reset = at_reset
        self._broken = broken
        if broken == "__init__":
            raise ValueError("two\nlines")

    def reset(self, example):
        return 1 / 0 if self._broken == "reset" else self._at_reset

    def step(self, text):
        return {}["x"] if self._broken == "step" else self._returned


def answer(**options):
    return environments.step("clay", environments.reset("clay", options, EXAMPLE), "turn")


@pytest.mark.parametrize("returned", [("seen", 1, False), ["seen", np.float32(1), np.bool_(False)]])
def test_answers_are_plain_values(returned):
    step = answer(returned=returned)
    assert step == Step("seen", 1.0, False)
    assert [type(value) for value in step] == [str, float, bool]


@pytest.mark.parametrize(
    "returned",
    [None, "abc", (), ("", 0.0), (1, 0.0, True), ("", "1", True), ("", np.nan, True), ("", 10**400, True),
     ("", 0.0, "no"), ("", 0.0, None), ("", 0.0, 2)],
    ids=str,
)  # fmt: skip
def test_other_answers_are_refused(returned):
    with pytest.raises(UserError, match=r"environment 'clay': step must return \(observation, reward, done\)"):
        answer(returned=returned)


@pytest.mark.parametrize(
    ("broken", "what"),
    [("__init__", "ValueError: two lines"), ("reset", "ZeroDivisionError"), ("step", "KeyError: 'x'")],
)
def test_an_exception_names_the_method_and_the_line(broken, what):
    with pytest.raises(UserError, match=rf"environment 'clay': {broken} raised {what}.*\(.*test_environment\.py:\d+\)"):
        answer(broken=broken)


def test_reset_returns_nothing():
    with pytest.raises(UserError, match=r"environment 'clay': reset must return None, .* got 'look around'"):
        answer(at_reset="look around")


def test_options_are_the_arguments():
    assert not [*option_problems("calculator", {"call_reward": 0.2})]
    [problem] = option_problems("calculator", {"call_rewrd": 0.2})
    assert problem == "environment.options of 'calculator': got an unexpected keyword argument 'call_rewrd'"
    with pytest.raises(UserError, match=r"unknown environment\.name 'calculater': did you mean 'calculator'"):
        ENVIRONMENTS["calculater"]
