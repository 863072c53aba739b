r"""Units and counted things: the words after a number (`\text{ km s}^{-1}`, "miles per hour", "apples") and their form.

`read_unit` brings units that are written alike to one text; nothing is converted. A word is a unit if it is a symbol or
name of one, or a counted thing: a noun of the list below or, in `\text`, a plural. What changes the value ("tens",
"squared", "or more", "six") is no unit.
"""

import functools
import re
from collections import Counter

from pods_jax.rewards.grammar.words import changes_value, listed

MAX_CHARS = 120
MAX_WORDS = 12
MAX_MODIFIERS = 4

# ---------------------------------------------------------------- symbols and names

_PREFIXES = {"Y": "yotta", "Z": "zetta", "E": "exa", "P": "peta", "T": "tera", "G": "giga", "M": "mega", "k": "kilo",
             "h": "hecto", "da": "deca", "d": "deci", "c": "centi", "m": "milli", "μ": "micro", "u": "micro",
             "n": "nano", "p": "pico", "f": "femto", "a": "atto"}  # fmt: skip
_PREFIXED = {  # symbol: names
    "m": "meter metre", "g": "gram gramme", "s": "", "A": "ampere amp", "K": "kelvin", "mol": "mole", "Hz": "hertz",
    "N": "newton", "Pa": "pascal", "J": "joule", "W": "watt", "C": "coulomb", "V": "volt", "F": "farad",
    "Ω": "ohm", "S": "siemens", "T": "tesla", "Wb": "weber", "H": "henry", "Bq": "becquerel", "Gy": "gray",
    "Sv": "sievert", "lm": "lumen", "lx": "lux", "cd": "candela", "eV": "electronvolt electron-volt",
    "L": "liter litre", "l": "", "pc": "parsec", "cal": "calorie", "bar": "bar", "M": "molar", "Ci": "curie",
    "B": "byte", "erg": "erg", "yr": "", "G": "gauss",
}  # fmt: skip
_OTHERS = {
    "°": "degree deg", "dollar": "dollar usd buck", "cent": "cent", "euro": "euro", "in": "inch inches in.",
    "ft": "foot feet", "yd": "yard", "mi": "mile", "lb": "pound lbs", "oz": "ounce", "s": "second sec", "g": "gm",
    "min": "minute", "h": "hour hr", "day": "day", "week": "week", "month": "month", "yr": "year", "mi/h": "mph",
    "km/h": "kph kmh", "rad": "radian", "unit": "unit", "Å": "angstrom angstroms", "atm":
    "atmosphere", "dyn": "dyne", "AU": "au", "ly": "lightyear light-year", "amu": "amu", "Da": "dalton", "gal":
    "gallon", "qt": "quart", "pt": "pint", "acre": "acre", "knot": "knot kn", "rpm": "rpm", "torr": "torr", "mmHg":
    "mmhg", "hp": "horsepower", "Btu": "btu", "psi": "psi", "ton": "ton tonne", "sr": "steradian", "dB": "decibel",
    "°C": "celsius", "°F": "fahrenheit", "ha": "hectare", "bit": "bit", "rev": "revolution", "cc": "cc",
    "person": "person people", "child": "children", "man": "men", "woman": "women", "die": "dice"
}  # fmt: skip
_NOUNS = frozenset(
    """apple arrangement bag ball banana bead bean bird block board boat bolt book bottle bowl box boxes boy brick
    bus buses bushel cake candle candy candies cape car card carrot case cat chair chicken child choice chip class
    classes cell coin color colour combination cookie copy copies couple cow crayon cube cup cupcake customer deer
    desk diagonal digit divisor dog domino donut dot dozen-egg dress dresses duck edge egg element employee error face
    factor family families fish flower friend frog function game girl goat goal graph group guest hat horse house
    integer jar jelly key kid kitten lap leaf leaves letter lily lion litter loaf loaves marble match matches meal
    member monkey multiple necklace node number nut odd-number orange order-pair outcome page pair pan panda party
    parties path pattern peach peaches pear pen pencil permutation person pie piece pig pizza plane plant plate player
    point pond pony ponies possibility possibilities potato potatoes present prime problem puppy puppies question
    rabbit rectangle region ribbon ring room root rose roots route row run seat seed set sheep ship shirt shoe side
    slice snack sock solution sprint square stamp star state step sticker stone store story stories straw student
    subset team teacher term ticket tile time-unit tire tomato tomatoes toy train tree triangle trip truck value
    vertex vertices visit visitor volunteer vote walnut way window word worker"""
    .replace("dozen-egg", "").replace("odd-number", "").replace("order-pair", "").replace("time-unit", "").split()
)  # fmt: skip
_NOT_PLURAL = re.compile(
    r".*(?:ss|us|is|ous|less|ways|wise|wards)|always|perhaps|its|his|hers|ours|theirs|yours|besides"
)
LOOSE_ENDS = frozenset({"each", "every", "in", "from", "of", "for", "at", "on", "by", "total", "altogether", "away",
                         "long", "wide", "tall", "high", "deep", "old", "left", "remaining", "together", "all",
                         "overall", "with", "apiece", "daily", "weekly"})  # fmt: skip
DIVISIONS = frozenset({"per", "a", "an", "each", "every"})
_POWER_WORDS = {"squared": 2, "cubed": 3}
_POWER_ADJECTIVES = {"square": 2, "sq": 2, "sq.": 2, "cubic": 3, "cu": 3}
_BARE = listed(
    """cm mm km kg ft lb lbs oz yd mi hr hrs min mins sec secs mph kph rpm day days cms kms kgs mol Hz kHz MHz GHz
    keV MeV GeV kJ MJ kW MW kV kPa MPa mL ml kN dB atm rad"""
)
_BARE_QUOTIENTS = listed("m/s m/s^2 km/h km/hr km/s cm/s ft/s mi/h mi/hr g/cm^3 kg/m^3 g/mol kJ/mol J/mol")
_PIECE = re.compile(r"[^\W\d_]+\.?(?:['’-][^\W\d_]+)*|°[CF]?|%|/|\^-?[0-9]+|-?[0-9]+|[()·*]")


def _named(symbol: str, names: str, prefixes: bool) -> dict[str, str]:
    """Names of a unit, in lower case and with plurals, and their symbol."""
    found = {name: symbol for name in names.split()}
    if prefixes:
        found |= {word + name: prefix + symbol for name in names.split() for prefix, word in _PREFIXES.items()}
    return found | {f"{name}s": unit for name, unit in found.items()}


UNIT_NAMES = {name: unit for symbol, names in _OTHERS.items() for name, unit in _named(symbol, names, False).items()}
for _symbol, _names in _PREFIXED.items():
    UNIT_NAMES |= _named(_symbol, _names, True)
_SYMBOLS = {symbol: symbol for symbol in _OTHERS if len(symbol) <= 4 and symbol not in ("foot", "unit", "cent")}
_SYMBOLS |= {prefix + symbol: prefix.replace("u", "μ") + symbol for symbol in _PREFIXED for prefix in _PREFIXES}
_SYMBOLS |= {symbol: symbol for symbol in _PREFIXED} | {"min": "min", "h": "h", "ft": "ft", "cd": "cd", "d": "day"}
del _SYMBOLS["am"]  # a time of day


def symbol_or_name(word: str) -> str | None:
    """The symbol of the unit of measurement that a word names, by symbol (`kJ`, in its case) or name ("Kilojoules")."""
    word = word.rstrip(".") or word
    exact = _SYMBOLS.get(word)
    found = exact or UNIT_NAMES.get(word.lower())
    if found is None and len(word) > 1:
        found = _SYMBOLS.get(word.lower()) or _SYMBOLS.get(word.removesuffix("s"))
    return found[:-1] + "l" if found and found.endswith("L") else found


def is_bare_unit(word: str) -> bool:
    """Whether letters after a number, outside of `\\text`, are a unit: no product of variables is written so."""
    if word in _BARE:
        return True
    lower = word.lower()
    return len(word) > 3 and (lower in UNIT_NAMES or _noun(lower, any_plural=False) is not None)


def is_bare_quotient(text: str) -> bool:
    """As `is_bare_unit`, for a quotient such as `m/s^2`."""
    return text in _BARE_QUOTIENTS


# ---------------------------------------------------------------- phrases


@functools.lru_cache(maxsize=4096)
def read_unit(text: str) -> str | None:
    """One text for all spellings of a unit or a counted thing ("square centimeters" is "cm^2"); None for no unit."""
    pieces = _PIECE.findall(text)
    if len(text) > MAX_CHARS or not pieces or len(pieces) > 2 * MAX_WORDS:
        return None
    if "".join(pieces) != "".join(text.replace(",", "").split()):
        return None
    phrase = _Phrase(pieces)
    return phrase.read()


class _Phrase:
    """One pass over the pieces of a phrase: factors, then what they are divided by, then a tail that says no more."""

    def __init__(self, pieces: list[str]):
        self.pieces = pieces
        self.place = 0
        self.powers: Counter[str] = Counter()

    def peek(self) -> str:
        return self.pieces[self.place] if self.place < len(self.pieces) else ""

    def take(self) -> str:
        self.place += 1
        return self.pieces[self.place - 1]

    def read(self) -> str | None:
        if not self.factors(1) and self.peek() != "/":
            return None
        while self.peek() == "/" or self.peek().lower() in DIVISIONS:
            if not self.divided():
                return None
        return _written(self.powers) if self.tail() else None

    def factors(self, sign: int) -> bool:
        """Reads factors up to a division or a tail; whether there was one."""
        found = False
        while self.factor(sign):
            found = True
            if self.peek() in ("·", "*"):
                self.place += 1
        return found

    def factor(self, sign: int) -> bool:
        start = self.place
        power = _POWER_ADJECTIVES.get(self.peek().lower(), 1)
        if power > 1 and self.place + 1 < len(self.pieces):
            self.place += 1
        symbol = self.measure() or self.thing()
        if symbol is None:
            self.place = start
            return False
        above, _, below = symbol.partition("/")  # "km/h" has a symbol of its own, kph
        total = sign * power * self.power()
        self.powers[above] += total
        if below:
            self.powers[below] -= total
        return True

    def measure(self) -> str | None:
        """A unit of measurement; degrees are told apart by the scale that follows them."""
        symbol = symbol_or_name(self.peek()) if self.peek() else None
        if symbol is None or changes_value(self.peek()):
            return None
        self.place += 1
        if symbol == "°" and symbol_or_name(self.peek() or "?") in ("°C", "°F", "C", "F"):
            return "°" + symbol_or_name(self.take())[-1]
        return symbol

    def thing(self) -> str | None:
        """A counted thing: up to a few words of which the last is a noun, in the singular."""
        words: list[str] = []
        for word in self.pieces[self.place : self.place + MAX_MODIFIERS + 1]:
            lower = word.lower().rstrip(".")
            if not word[0].isalpha() or changes_value(lower) or lower in LOOSE_ENDS | DIVISIONS:
                return None
            words.append(lower)
            follower = self.pieces[self.place + len(words)] if self.place + len(words) < len(self.pieces) else ""
            noun = _noun(lower, any_plural=True)
            if noun and (not follower[:1].isalpha() or follower.lower() in LOOSE_ENDS | DIVISIONS):
                self.place += len(words)
                return " ".join([*words[:-1], noun])
        return None

    def power(self) -> int:
        if self.peek().startswith("^") or self.peek().lstrip("-").isdigit():
            return int(self.take().lstrip("^")[:4])
        return _POWER_WORDS.get(self.take().lower(), 1) if self.peek().lower() in _POWER_WORDS else 1

    def divided(self) -> bool:
        """Takes "/", "per" or "a", and after it factors, in brackets or not, or any words that do not change the value.

        Returns:
          False if there is neither, or a bracket stays open.
        """
        self.place += 1
        bracket = self.peek() == "("
        self.place += bracket
        if not self.factors(-1):
            words = []
            while self.peek()[:1].isalpha():
                words.append(self.take().lower())
            if not words:
                return False
            self.powers[" ".join(words)] -= 1
        if not bracket:
            return True
        self.place += 1
        return self.pieces[self.place - 1 : self.place] == [")"]

    def tail(self) -> bool:
        """Whether what is left only says of what, from where, or for whom ("of feed", "from City A", "in total")."""
        rest = self.pieces[self.place :]
        if not rest:
            return True
        allowed = all(piece[0].isalpha() for piece in rest) and not any(map(changes_value, rest))
        return allowed and rest[0].lower() in LOOSE_ENDS and len(rest) <= MAX_WORDS


def _noun(word: str, *, any_plural: bool) -> str | None:
    """The singular of a noun: one of the list or, if asked for, of any plural in s."""
    if word in ("person", "people", "children", "men", "women", "dice"):
        return UNIT_NAMES[word]
    singular = word[:-1] if word.endswith("s") else word
    if word in _NOUNS or singular in _NOUNS:
        return singular
    if not any_plural or len(word) < 3 or not word.endswith("s") or _NOT_PLURAL.fullmatch(word):
        return None
    return singular


def _written(powers: Counter[str]) -> str:
    """Factors by name, each with its power."""
    parts = [f"{symbol}^{power}" if power != 1 else symbol for symbol, power in sorted(powers.items()) if power]
    return " ".join(parts) or "1"
