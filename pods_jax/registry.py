"""Named families of interchangeable parts: a fork adds a part with one file and one line of config."""

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pods_jax.errors import UserError

T = TypeVar("T")


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint at the end of a message about an unknown name: the closest known name, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean '{close[0]}'?" if close else f"known: {', '.join(known) or 'none'}"


class Registry(Mapping[str, T]):
    """A read-only mapping from names to parts, filled by `@register("name")`."""

    def __init__(self, family: str):
        self.family = family
        self._parts: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(part: T) -> T:
            if name in self._parts:
                raise ValueError(f"{self.family} '{name}' is registered twice")
            self._parts[name] = part
            return part

        return add

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise UserError(f"unknown {self.family} '{name}': {nearest(name, self._parts)}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)


def import_submodules(package: str, skip: Collection[str] = ()) -> None:
    """Imports every module of a package, so that the parts that its files register need not be listed anywhere."""
    for module in pkgutil.iter_modules(sys.modules[package].__path__):
        if module.name not in skip:
            importlib.import_module(f"{package}.{module.name}")


def load_named(name: str, what: str, form: str) -> Any:
    """The function or class that "module:attribute" names: a part of the user's own.

    what, form: subject and expected form of the message.

    Raises:
      UserError: there is no such module or attribute, or it cannot be called.
    """
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{what}: expected {form} on the search path ({error})") from error
    if not callable(found):
        raise UserError(f"{what} is not callable")
    return found
