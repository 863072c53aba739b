"""Words with a meaning: functions, and what says that a number is not the whole answer."""

import re


def listed(names: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(names.split())


FUNCTIONS = {
    name: name
    for name in listed(
        "sin cos tan cot sec csc sinh cosh tanh coth sech csch asin acos atan acot asec acsc asinh acosh atanh exp ln "
        "log lg gcd lcm min max det rank floor ceil"
    )
} | {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsec": "asec", "arccsc": "acsc",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arsinh": "asinh", "arcosh": "acosh",
    "artanh": "atanh", "cosec": "csc", "tg": "tan", "ctg": "cot", "arctg": "atan", "ceiling": "ceil", "abs": "abs",
    "lb": "lb",
}  # fmt: skip
INVERSES = {name: "a" + name for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}

GREEK = listed(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau "
    "upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar partial "
    "nabla aleph"
)

# ---------------------------------------------------------------- numbers in words

SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_COUNTS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand nil nought naught"
)
_PORTIONS = (
    "half halves halved quarter quarters quartered third thirds fifth fifths eighth eighths ninth ninths twelfth "
    "twelfths twentieth thirtieth dozen dozens score scores gross couple googol lakh lakhs crore crores myriad grand "
    "once twice thrice double triple quadruple pi π tau percent permille ppm ppb"
)
_NUMBER_WORD = re.compile(
    rf"(?:{'|'.join(_COUNTS.split())})(?:e?s|t?h|t?hs|ieths?|ths?|fold)?"
    rf"|(?:{'|'.join(_PORTIONS.split())})"
    r"|\w*illi(?:on|ard)(?:s|ths?|fold)?|(?:twent|thirt|fort|fift|sixt|sevent|eight|ninet)ie(?:s|ths?)|zilch|bn"
)


def leading_scale(words: list[str]) -> tuple[int, list[str]]:
    """The factor that the first words stand for ("hundred thousand miles": 100,000), and the words after them."""
    factor = 1
    while words and words[0].lower() in SCALES:
        factor, words = factor * SCALES[words[0].lower()], words[1:]
    return factor, words


# ---------------------------------------------------------------- words that change a value

_OPERATIONS = listed(
    "add added and as base but cube cubed decimal decreased degree divided doubled doubles doubling equals "
    "exponent factorial fold halving increased into inverse inverses inverted logarithm minus mod modulo "
    "multiplied multiply neg negated negative negatives nth offset opposite opposites order over plus point "
    "power powered raised reciprocal reciprocals recurring remainder repeating root rounded shifted sqrt square "
    "squared subtract subtracted sum tenfold times to transpose tripled triples truncated x"
)
_HEDGES = listed(
    "about above almost alternatively ambiguous another any anything apart approximate approximately approx around "
    "assuming at-least at-most because below besides between beyond choose contradiction could depending "
    "either else error exceeding except exclude excluding false fewer greater hence if impossible imaginary incorrect "
    "infinite infinity instead invalid is isn't less maybe mistake more most nan nearly neither never no none nor not "
    "null only opposed or otherwise perhaps possibly probably rather roughly short since so than then therefore though "
    "thus today unclear undefined under unknown unless until versus via vs wait when where which while within without "
    "wrong yes yet always sometimes was has does are were isnt cannot can't least fake guess"
)


_FUNCTION_WORDS = FUNCTIONS.keys() - {"min", "sec", "lb"}  # these are units


def changes_value(word: str) -> bool:
    """Whether a word beside a number says that the number is not the value ("tens", "squared", "not", "six")."""
    if word == "k":
        return True
    word = word.lower()
    if word in _OPERATIONS or word in _HEDGES or word in _FUNCTION_WORDS or _NUMBER_WORD.fullmatch(word):
        return True
    parts = word.split("-")
    return len(parts) > 1 and (all(map(changes_value, parts)) or parts[0] in ("non", "half", "minus", "negative"))


# ---------------------------------------------------------------- words as answers

_SHORT_WORDS = listed("in no on up us")
_VOWELS = re.compile("[aeiouyAEIOUY]")


def is_word(letters: str) -> bool:
    """Whether a run of letters that is a whole answer is a word rather than a product of variables.

    Products are written in alphabetical order (`abc`) or have no vowel (`mgh`); labels such as `CBAD` and names such as
    `Ben` are words. Two anagrams are never equal unless both are products.
    """
    if len(letters) < 3:
        return letters.lower() in _SHORT_WORDS
    ordered = list(letters.lower()) == sorted(letters.lower())
    return letters.istitle() or (not ordered and bool(letters.isupper() or _VOWELS.search(letters)))
