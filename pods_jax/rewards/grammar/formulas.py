"""Formulas: tokens -> tree, by recursive descent over sums, products, powers and what they are made of."""

from collections.abc import Callable
from fractions import Fraction

from pods_jax.rewards.grammar.applications import HOLE, applied
from pods_jax.rewards.grammar.binders import Binders
from pods_jax.rewards.grammar.environments import Environments
from pods_jax.rewards.grammar.nodes import (
    BaseNumber,
    Call,
    Interval,
    Items,
    Node,
    Number,
    Symbol,
    Text,
    is_free,
    symbols,
)
from pods_jax.rewards.grammar.numerals import Numerals
from pods_jax.rewards.grammar.reader import fail
from pods_jax.rewards.grammar.tokens import Token, Unparsable
from pods_jax.rewards.grammar.units import is_bare_quotient, is_bare_unit, symbol_or_name
from pods_jax.rewards.grammar.words import FUNCTIONS, GREEK, INVERSES, SCALES

_PRODUCTS = {"*": "mul", r"\cdot": "mul", r"\times": "mul", r"\ast": "mul", "/": "div", r"\div": "div"}
_SUMS = {"+": "add", "-": "sub", r"\pm": "pm", r"\mp": "mp"}
_POSTFIXES = {"!": "factorial", "!!": "double factorial", "%": "percent"}
_REALS = Interval(Call("neg", (Call("inf"),)), Call("inf"), False, False)
_NUMBER_SETS = {rf"\{name}": Text(name) for name in ("integers", "naturals", "rationals", "complexes")}
_CONSTANTS = {r"\pi": Call("pi"), r"\infty": Call("inf"), r"\imath": Call("i"), r"\reals": _REALS,
              r"\emptyset": Items("set", ()), r"\varnothing": Items("set", ()), **_NUMBER_SETS}  # fmt: skip
WORD_CONSTANTS = {"e": Call("e"), "i": Call("i"), "pi": Call("pi"), "infinity": Call("inf"), "inf": Call("inf"),
                  "infty": Call("inf")}  # fmt: skip
_ACCENTS = {r"\vec": "vec", r"\overrightarrow": "vec", r"\overline": "bar", r"\bar": "bar", r"\hat": "hat",
            r"\widehat": "hat", r"\tilde": "tilde", r"\widetilde": "tilde", r"\dot": "dot", r"\ddot": "ddot",
            r"\mathbf": "mathbf"}  # fmt: skip
_FENCES = {r"\lfloor": (r"\rfloor", "floor"), r"\lceil": (r"\rceil", "ceil")}
_CALCULUS = {r"\sum": "sum", r"\prod": "prod", r"\int": "int", r"\lim": "lim"}
_PRIMARY_COMMANDS = frozenset(
    [r"\frac", r"\sqrt", r"\binom", *_CONSTANTS, *_ACCENTS, *_FENCES, *_CALCULUS, *(f"\\{name}" for name in FUNCTIONS)]
    + [f"\\{name}" for name in GREEK]
)
_CHOICES = frozenset({r"\choose", r"\over", r"\atop"})
_CROSS = Token("name", "x")  # between two numbers


class Formulas(Numerals, Binders, Environments):
    """Methods are named after what they read; each raises `Unparsable` if it is not there."""

    def answer(self) -> Node:
        """An answer of any form, as it may stand in braces."""
        raise NotImplementedError

    def bracketed(self) -> Node:
        r"""The contents of (), [] or \{\}."""
        raise NotImplementedError

    # ------------------------------------------------------------ arithmetic

    def sum(self) -> Node:
        total = self.signed(self.term)
        while self.peek().text in _SUMS and self.peek().kind != "text":
            name = _SUMS[self.take().text]
            right = self.signed(self.term)
            if name == "sub" and isinstance(total, Interval | Items) and isinstance(right, Items | Interval):
                total = Items("difference", (total, right))
            else:
                total = Call("add", (total, Call("neg", (right,)))) if name == "sub" else Call(name, (total, right))
        return total

    def signed(self, read: Callable[[], Node]) -> Node:
        if self.peek().text not in _SUMS or self.peek().kind == "text":
            return read()
        name = _SUMS[self.take().text]
        value = self.nested(lambda: self.signed(read))
        if name == "add":
            return value
        if name == "sub":
            return _negative(value)
        return Call(name, (Number(Fraction(0)), value))

    def term(self) -> Node:
        product = self.factor()
        while not self.ends_product(product):
            operator = _PRODUCTS.get(self.peek().text)
            if self.peek() == _CROSS and self.peek(1).kind == "number":
                operator = "mul"
            if operator:
                self.take()
                product = Call(operator, (product, self.signed(self.factor)))
            elif self.starts_factor():
                product = Call("mul", (product, _without_braces(self.factor())))
            else:
                return product
        return product

    def ends_product(self, product: Node) -> bool:
        """Whether the next token is a unit of the number before it, or "to" in a ratio, rather than a factor."""
        kind, text = self.peek()
        if kind == "name" and (text in ("for", "where", "with") or (text == "to" and self.peek(1).kind == "number")):
            return True
        if kind == "name" and text in ("C", "F") and isinstance(product, Call) and product.name == "degree":
            return True
        return self.starts_unit() and not symbols(product)

    def starts_unit(self) -> bool:
        """Whether letters outside of \\text are a unit."""
        kind, text = self.peek()
        follower = self.peek(1)
        if text == "/":
            return follower.kind == "text" or (follower.kind == "name" and is_bare_unit(follower.text))
        if text in (r"\mu", r"\Omega") and (text == r"\Omega" or follower.kind == "text"):
            return follower.kind == "text" or text == r"\Omega"
        if kind != "name":
            return False
        if text in FUNCTIONS and (follower.kind in ("name", "number") or follower.text in ("(", "^", r"\{")):
            return False
        return is_bare_unit(text) or text.lower() in SCALES or self.starts_bare_quotient()

    def starts_bare_quotient(self) -> bool:
        texts = [self.peek(ahead).text for ahead in range(5)]
        return texts[1] == "/" and (
            (is_bare_quotient("".join(texts[:3])) and texts[3] != "^") or is_bare_quotient("".join(texts))
        )

    def starts_factor(self) -> bool:
        """Whether the next token multiplies what stands before it without a sign between them."""
        kind, text = self.peek()
        if kind in ("letters", "name"):
            return True
        if kind == "text":
            return len(text) == 1 and symbol_or_name(text) is None and self.peek(1).text != r"\Omega"
        if text == "|":
            return not self.bars
        return text in ("(", "[", "{", r"\{") or kind == "begin" or text in _PRIMARY_COMMANDS

    def factor(self) -> Node:
        """A power; a letter with brackets after it may be a function and its argument."""
        node = self.power()
        inverse = node == Call("pow", (node.args[0], _MINUS_ONE)) if isinstance(node, Call) and node.args else False
        if inverse and node.args[0] in _INVERTIBLE and self.peek().text == "(":
            node = Symbol(f"{node.args[0].name}^-1")
        if not is_free(node) or self.peek().text != "(":
            return node
        inside = self.nested(self.bracketed)
        arguments = inside.items if isinstance(inside, Items) and inside.kind == "tuple" else (inside,)
        if node.name == "C" and len(arguments) == 2:
            return Call("binom", arguments)
        return applied(node, arguments, self.powered(self.factorials(HOLE)))

    def power(self) -> Node:
        base = self.postfix()
        if isinstance(base, Symbol) and base.name == "C" and self.peek().text == "^":
            chosen = self.attempt(lambda: self.chosen("^", "_"))
            if chosen:
                return chosen
        return self.powered(base)

    def powered(self, base: Node) -> Node:
        if not self.accept("^"):
            return base
        if self.accept(r"\circ") or (self.peek().text == "{" and self.peek(1).text == r"\circ" and self.skip(3)):
            return Call("degree", (base,))
        exponent = self.exponent()
        if self.peek().text == "_" and is_free(base) and "_" not in base.name:
            base = self.subscripted(base.name)
        return self.factorials(Call("pow", (base, exponent)))

    def exponent(self) -> Node:
        """A group, or what a writer means without one: `x^12` is the twelfth power, `x^ab` is x^a b."""
        if self.peek().kind == "number" and self.peek(1).text == "_":
            return Number(Fraction(self.take().text))
        return self.nested(
            lambda: self.signed(lambda: self.power() if self.peek().text != "{" else self.towered(self.group()))
        )

    def towered(self, node: Node) -> Node:
        return Call("pow", (node, self.exponent())) if self.accept("^") else node

    def postfix(self) -> Node:
        node = self.primary()
        while self.accept("'"):
            node = Symbol(f"{node.name}'") if is_free(node) else fail("prime")
        return self.factorials(node)

    def factorials(self, node: Node) -> Node:
        while self.peek().text in _POSTFIXES:
            node = Call(_POSTFIXES[self.take().text], (node,))
        return node

    # ------------------------------------------------------------ primaries

    def primary(self) -> Node:
        kind, text = self.peek()
        if kind == "number":
            return self.number()
        if kind in ("name", "letters"):
            return self.name()
        if kind == "text":
            return self.text()
        if text in ("(", "[", r"\{"):
            return self.nested(self.bracketed)
        if text == "{" and self.peek(1).text == "}" and self.skip(2):
            return self.primary()
        if text in ("_", "^"):
            return self.nested(self.prescribed)
        if text == "{":
            return self.nested(self.group)
        if text == "|":
            return self.nested(self.absolute)
        if kind == "begin":
            return self.nested(self.environment)
        return self.nested(self.command)

    def name(self) -> Node:
        """A constant, a function, or the first letter of a product of variables."""
        text = self.peek().text
        if text in self.bound:
            return self.letter(self.split(len(text)))
        if text in WORD_CONSTANTS and not (len(text) == 1 and self.peek(1).text == "_"):
            self.take()
            return WORD_CONSTANTS[text]
        if text == "sqrt":
            self.take()
            return self.root()
        known = next((n for n in (len(text), len(text) - 1) if text[:n] in FUNCTIONS and len(text) > 1), None)
        if known:
            return self.nested(lambda: self.function(self.split(known)))
        if text.startswith("pi") and len(text) == 3:
            return WORD_CONSTANTS[self.split(2)]
        return self.derivative() or self.letter(self.split(1))

    def derivative(self) -> Node | None:
        """`dy/dx` as one name."""
        texts = [self.peek(ahead).text for ahead in range(3)]
        if texts[1] == "/" and all(
            len(text) == 2 and text[0] == "d" and text.isalpha() for text in (texts[0], texts[2])
        ):
            self.skip(3)
            return Symbol("/".join(texts[::2]))
        return None

    def letter(self, letter: str) -> Node:
        if letter in self.bound:
            return self.bound[letter]
        return WORD_CONSTANTS.get(letter) or self.subscripted(letter)

    def text(self) -> Node:
        """A letter, function or constant in upright type; words are no part of a formula."""
        text = self.take().text
        if text in FUNCTIONS and self.peek().text in ("(", "{"):
            return self.nested(lambda: self.function(text))
        if len(text) == 1 and text.isalpha():
            return self.letter(text)
        if text.lower() in WORD_CONSTANTS:
            return WORD_CONSTANTS[text.lower()]
        if self.peek().text == "_" and text.isalpha():
            return self.subscripted(text)
        raise Unparsable("words in a formula")

    def subscripted(self, name: str) -> Node:
        if self.peek().text != "_":
            return Symbol(name)
        if name == "C":
            chosen = self.attempt(lambda: self.chosen("_", "^"))
            if chosen:
                return chosen
        self.take()
        if not self.accept("{"):
            return Symbol(f"{name}_{self.split(1)}") if self.peek().kind != "finish" else fail("open subscript")
        parts = []
        open_braces = 1
        while open_braces:
            text = self.take().text or fail("open subscript")
            open_braces += (text == "{") - (text == "}")
            parts.append(text)
        return Symbol(f"{name}_{''.join(parts[:-1])}")

    def chosen(self, first: str, second: str) -> Node:
        """`C_n^k`, `C^n_k` or, with numbers, `C^2_5`; `C_1^2` is the square of a constant."""
        self.expect(first)
        n = self.argument()
        self.expect(second)
        k = self.argument()
        if first == "^" and isinstance(n, Number) and (not isinstance(k, Number) or n.value < k.value):
            n, k = k, n
        if isinstance(n, Number) and (not isinstance(k, Number) or n.value <= k.value):
            raise Unparsable("a power of a letter with an index")
        return Call("binom", (n, k))

    def prescribed(self) -> Node:
        """`_nC_k`, `^nC_k`, and the same with P for ordered choices."""
        if not self.accept("_", "^"):
            raise Unparsable("nothing to choose from")
        n = self.argument()
        text = self.take().text
        if text not in ("C", "P") or not self.accept("_"):
            raise Unparsable("nothing to choose")
        k = self.argument()
        binomial = Call("binom", (n, k))
        return binomial if text == "C" else Call("mul", (binomial, Call("factorial", (k,))))

    def group(self) -> Node:
        """A TeX group: braces that only hold together."""
        self.expect("{")
        bars, self.bars = self.bars, 0
        node = self.answer()
        if self.peek().text in _CHOICES:
            name = "div" if self.take().text == r"\over" else "binom"
            node = Call(name, (node, self.answer()))
        self.bars = bars
        self.expect("}")
        return node

    def absolute(self) -> Node:
        self.expect("|")
        self.bars += 1
        inside = self.sum()
        self.bars -= 1
        self.expect("|")
        return Call("abs", (inside,))

    def command(self) -> Node:
        kind, text = self.take()
        if kind != "command":
            raise Unparsable(f"unexpected {text!r}")
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if text == r"\frac":
            return _fraction(self.argument(), self.argument())
        if text == r"\binom":
            return Call("binom", (self.argument(), self.argument()))
        if text == r"\sqrt":
            return self.root()
        if text in _ACCENTS:
            return self.accented(_ACCENTS[text])
        if text in _FENCES:
            closing, name = _FENCES[text]
            inside = self.sum()
            self.expect(closing)
            return Call(name, (inside,))
        if text in (r"\sum", r"\prod"):
            return self.big_operator(_CALCULUS[text])
        if text == r"\int":
            return self.integral()
        if text == r"\lim":
            return self.limit()
        if text[1:] in FUNCTIONS:
            return self.function(text[1:])
        if text[1:] in GREEK:
            return self.bound.get(text[1:]) or self.subscripted(text[1:])
        raise Unparsable(f"unknown command {text}")

    def argument(self) -> Node:
        r"""A group, or the one character that TeX would take."""
        kind, text = self.peek()
        if text == "{":
            return self.nested(self.group)
        if kind == "number":
            return Number(Fraction(self.split(1)))
        if kind in ("name", "letters"):
            letter = self.split(1)
            return self.bound.get(letter) or WORD_CONSTANTS.get(letter, Symbol(letter))
        return self.nested(self.signed_command)

    def signed_command(self) -> Node:
        return self.signed(self.argument) if self.peek().text == "-" else self.primary()

    def root(self) -> Node:
        degree = Number(Fraction(2))
        if self.accept("["):
            degree = self.sum()
            self.expect("]")
        return Call("root", (self.primary(), degree))

    def accented(self, accent: str) -> Node:
        """A letter or two with a mark above them is a name of its own."""
        if self.accept("{"):
            parts = []
            while not self.accept("}"):
                parts.append(self.take().text.lstrip("\\") or fail("open accent"))
            name = "".join(parts)
        else:
            name = self.split(1).lstrip("\\")
        if not name.isalpha() or len(name) > 8:
            raise Unparsable("mark above a formula")
        return self.subscripted(f"{accent} {name}")

    # ------------------------------------------------------------ functions

    def function(self, name: str) -> Node:
        r"""A function with its base and exponent (`\log_2 8`, `\sin^2 x`) and its argument."""
        name = FUNCTIONS[name]
        base = exponent = None
        if name == "log" and self.accept("_"):
            base = self.argument()
        if self.accept("^"):
            exponent = self.exponent()
        if exponent == _MINUS_ONE and name in INVERSES:
            name = INVERSES[name]
            exponent = None
        value = self.function_arguments()
        if len(value) != 1 and name not in _VARIADIC:
            raise Unparsable("arguments")
        call = Call("log", (*value, base)) if base else Call(name, value)
        return Call("pow", (call, exponent)) if exponent else call

    def function_arguments(self) -> tuple[Node, ...]:
        """The contents of brackets, or else the product that follows up to the next function or operator."""
        if self.peek().text in ("(", "[", "{", "|", r"\{"):
            inside = self.primary()
            several = isinstance(inside, Items) and inside.kind in ("tuple", "list", "set")
            return inside.items if several else (inside,)
        product = self.power()
        while self.starts_factor() and not self.starts_function() and not self.ends_product(product):
            product = Call("mul", (product, self.power()))
        return (product,)

    def starts_function(self) -> bool:
        text = self.peek().text
        return text in "([{|" or text.lstrip("\\") in FUNCTIONS


_VARIADIC = frozenset({"gcd", "lcm", "min", "max"})
_MINUS_ONE = Call("neg", (Number(Fraction(1)),))
_INVERTIBLE = frozenset(map(Symbol, "fghFGH"))


def _negative(node: Node) -> Node:
    """The negative of a node; the sign of a number that states its base stands with its digits."""
    if isinstance(node, BaseNumber) and not node.digits.startswith("-"):
        return BaseNumber(f"-{node.digits}", node.base)
    return Call("neg", (node,))


def _without_braces(node: Node) -> Node:
    r"""The contents of `\{ \}` after another factor: there they hold a factor together, and are no set."""
    return node.items[0] if isinstance(node, Items) and node.kind == "set" and len(node.items) == 1 else node


def _fraction(above: Node, below: Node) -> Node:
    r"""A quotient; or a derivative `\frac{d^2 y}{d x^2}`, which is a name of its own."""
    match above, below:
        case (
            Call("mul", ((Symbol(d) | Call("pow", (Symbol(d), _))) as top, of)),
            Call("mul", (Symbol(e), (Symbol(by) | Call("pow", (Symbol(by), _))) as bottom)),
        ) if d == e and d in ("d", "partial"):
            order = top.args[1] if isinstance(top, Call) else Number(Fraction(1))
            below_order = bottom.args[1] if isinstance(bottom, Call) else Number(Fraction(1))
            if order == below_order and isinstance(order, Number) and isinstance(of, Symbol):
                return Symbol(f"{d}{order.value} {of.name}/{by}")
    return Call("div", (above, below))
