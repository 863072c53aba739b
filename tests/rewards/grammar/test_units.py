"""Units in any spelling."""

import pytest

from pods_jax.rewards.grammar.units import read_unit

SAME = [
    ("km/h", "kilometers per hour", "km h ^-1", "kmh", "Kilometres/hour"),
    ("m/s ^2", "m s ^-2", "meters per second squared", "m/s^2", "metre per second per second"),
    ("cm^2", "square centimeters", "sq. cm", "centimetres squared"),
    ("J/(mol K)", "J mol^-1 K^-1", "joules per mole per kelvin"),
    ("kJ", "kilojoule", "kilojoules", "kJ."),
    ("ft", "feet", "foot"),
    ("apples", "apple", "Apples"),
    ("°C", "degrees Celsius", "° C"),
]
NONE = [
    "tens",
    "cubed",
    "six",
    "or more",
    "point three",
    "wrong",
    "x",
    "of apples",
    "dozen eggs",
    "million",
    "apples less",
    "",
]


@pytest.mark.parametrize("spellings", SAME)
def test_spellings_of_one_unit(spellings):
    assert len({read_unit(spelling) for spelling in spellings}) == 1
    assert read_unit(spellings[0]) is not None


def test_units_are_told_apart():
    units = [read_unit(spellings[0]) for spellings in SAME]
    assert len(set(units)) == len(units)
    assert read_unit("mW") != read_unit("MW")


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_unit(text):
    assert read_unit(text) is None
