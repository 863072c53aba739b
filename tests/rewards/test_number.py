from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pods_jax.rewards.verifiers.gsm8k import MAX_DIGITS, parse_number

INTEGERS = st.integers(-(10**18), 10**18)
DECIMALS = st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=3)


@given(INTEGERS)
def test_integers_mean_the_same_in_every_form(value):
    blank_groups = f"{value:,}".replace(",", " ")
    for text in (
        f"{value}",
        f"{value:,}",
        blank_groups,
        f"${value:,}$",
        f"\\({value}\\)",
        f"{value}.",
        f"{value}.00",
        f" **{value}** ",
        f"\\text{{{value} dollars}}",
        f"{value} dollars per day",
        f"{value}%",
        f"\\${value}",
        f"x = {value}",
        f"{value}".replace("-", "−"),
        f"{value}/1",
    ):
        assert parse_number(text) == value, text


@given(DECIMALS)
def test_decimals_are_exact(value):
    assert parse_number(f"{value:f}") == Fraction(value)
    assert parse_number(f"{value:,f}") == Fraction(value)


@given(INTEGERS, INTEGERS)
def test_two_numbers_are_none(first, second):
    for text in (f"{first} and {second}", f"{first}; {second}", f"{first} or {second}", f"{first}*{second}"):
        assert parse_number(text) is None, text


@given(INTEGERS, st.integers(1, 10**6))
def test_fractions_are_exact(numerator, denominator):
    assert parse_number(f"{numerator}/{denominator}") == Fraction(numerator, denominator)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (".5", Fraction(1, 2)),
        ("-.5", Fraction(-1, 2)),
        ("+7", 7),
        ("-$5", -5),
        ("$-5", -5),
        ("$ 5", 5),
        ("18€", 18),
        ("9m", 9),
        ("12 m²", 12),
        ("540 meters/week", 540),
        ("$18/day", 18),
        ("9 * $2/egg = $18/day", 18),
        ("5 man-hours", 5),
        ("1{,}200", 1200),
        (r"1\,200", 1200),
        ("1.5 million", 1_500_000),
        ("1.5 million dollars", 1_500_000),
        ("5 hundred", 500),
        ("5 thousand/day", 5000),
        ("2 Thousand apples", 2000),
        ("5 hundred thousand", 500_000),
        ("3 trillion", 3 * 10**12),
        ("5 apples", 5),
        ("5 km", 5),
        ("5 kg", 5),
        ("3 dollars per dozen", 3),
        ("4 pies", 4),
        ("9 deaths per thousand people", 9),
        ("25 %", 25),
        ("1/2 cup", Fraction(1, 2)),
        ("18 (dollars)", 18),
    ],
)
def test_forms_that_state_one_number(text, value):
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        ".",
        "-",
        "$",
        "nan",
        "inf",
        "1e5",
        "0x10",
        "eighteen",
        "12,34",
        "1,2000",
        "1,000,00",
        "3,5",
        "1 0000",
        "2^3",
        "2**3",
        "5*3",
        "12 - 4",
        "12 -",
        "12 - x",
        "5x",
        "3 1/2",
        "3½",
        "5²",
        "5!3",
        "5!",
        "1/0",
        "1/2/3",
        "3:30",
        "between 10 and 12",
        "10-12",
        "> 5",
        "x >= 5",
        "x != 5",
        "~5",
        "≈5",
        "18 or more",
        "18 to twenty",
        "not 18",
        "18 because that is what remains",
        "Janet makes $18",
        "five 5",
        "٣",
        "5 ٣",
        "18 squared",
        "18 times two",
        "5k",
        "5 K dollars",
        "2 dozen",
        "2 dozen/day",
        "2 dozens of eggs",
        "2 hundred dozen",
        "4 score",
        "5 tenths",
        "5 hundredths",
        "2 thirds",
        "5 halves",
        "5 half",
        "5 half-dollars",
        "x + 1 = 5",
        "6 = 5",
        "2 + 2 = 5",
        "5 hundreds",
        "5 pi",
        "5π",
    ],
)
def test_forms_that_do_not(text):
    assert parse_number(text) is None


def test_length_is_limited_before_anything_is_converted():
    assert parse_number("9" * MAX_DIGITS) == 10**MAX_DIGITS - 1
    assert parse_number("9" * (MAX_DIGITS + 1)) is None
    assert parse_number("9" * 1_000_000) is None
    assert parse_number("1" + " " * 1_000) is None


@given(st.text(st.sampled_from("0123456789,./-+$% \\(){}*=aé²½"), max_size=60) | st.text(max_size=300))
def test_no_text_raises(text):
    value = parse_number(text)
    assert value is None or isinstance(value, Fraction)
