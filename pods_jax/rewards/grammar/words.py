"""Names with a meaning: functions, units, and words that say that an answer is not one value."""

import re


def _listed(names: str) -> frozenset[str]:
    return frozenset(names.split())


FUNCTIONS = {
    name: name
    for name in _listed(
        "sin cos tan cot sec csc sinh cosh tanh coth asin acos atan acot asec acsc exp ln log lg gcd lcm min max det "
        "floor ceil"
    )
} | {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsec": "asec", "arccsc": "acsc",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "ceiling": "ceil", "abs": "abs", "lb": "lb",
}  # fmt: skip
INVERSES = {name: "a" + name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}

_UNITS = {
    "degree": "degree degrees deg",
    "percent": "percent percentage",
    "dollar": "dollar dollars usd buck bucks",
    "cent": "cent cents",
    "mm": "mm millimeter millimeters millimetre millimetres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "in": "in inch inches",
    "ft": "ft foot feet",
    "yd": "yd yard yards",
    "mi": "mi mile miles",
    "g": "g gram grams",
    "mg": "mg milligram milligrams",
    "kg": "kg kilogram kilograms",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "ml": "ml milliliter milliliters millilitre millilitres",
    "l": "l liter liters litre litres",
    "mph": "mph",
    "kmh": "kmh kph",
    "radian": "rad rads radian radians",
    "unit": "unit units",
}
UNIT_NAMES = {word: unit for unit, words in _UNITS.items() for word in words.split()}

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
OTHER_SCALES = _listed(
    "dozen dozens score half halves thirds fourths fifths sixths sevenths eighths ninths tenths hundredths thousandths "
    "millionths hundreds thousands millions billions trillions pi π"
)

_MAX_UNIT_WORDS = 5
_NOT_UNITS = _listed(
    "about almost and approximately around because but choose divided either equals except factorial hence if is isn't "
    "less maybe minus more most neither not only or otherwise over plus possibly roughly since so squared than then "
    "therefore thus times to undefined when where which with without wrong x"
)
_SHORT_WORDS = _listed("am an as at be by do go he if in is it me my no of on so to up us we yes")


def leading_scale(words: list[str]) -> tuple[int, list[str]]:
    """The factor that the first words stand for ("hundred thousand miles": 100,000), and the words after them."""
    factor = 1
    while words and words[0] in SCALES:
        factor, words = factor * SCALES[words[0]], words[1:]
    return factor, words


def canonical_unit(words: str) -> str | None:
    """One spelling for units that are written alike ("square centimeters" is "cm^2"); None if the words are no unit."""
    parts = re.findall(r"[^\W\d_]+(?:['-][^\W\d_]+)*|/|\^-?[0-9]+", words.lower())
    if not parts or len(parts) > _MAX_UNIT_WORDS or parts[0] in OTHER_SCALES or not _NOT_UNITS.isdisjoint(parts):
        return None
    for adjective, power in (("square", "^2"), ("sq", "^2"), ("cubic", "^3")):
        if parts[0] == adjective and len(parts) > 1:
            parts = [parts[1], power, *parts[2:]]
    return "".join(UNIT_NAMES.get(part, "/" if part == "per" else part) for part in parts)


def is_word(letters: str) -> bool:
    """Whether a run of letters is a word rather than a product of variables.

    Products are written in alphabetical order (`abc`, `xyz`); two anagrams are never both taken for products.
    """
    if len(letters) == 2:
        return letters.lower() in _SHORT_WORDS
    return len(letters) > 2 and list(letters) != sorted(letters)
