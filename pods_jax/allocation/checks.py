"""Checks that several allocators' options share; each yields the violation, in words, if there is one."""

from collections.abc import Iterator, Sequence

from pods_jax.registry import nearest


def unknown_choice(key: str, value: str, known: Sequence[str]) -> Iterator[str]:
    """The violation of allocation.options.`key` that is none of the known names, if so."""
    if value not in known:
        yield f"allocation.options.{key} = '{value}' is unknown ({nearest(value, known)})"


def too_small(key: str, value: int | float | None, least: int) -> Iterator[str]:
    """The violation of allocation.options.`key` below `least`, if so; None is a default of its own."""
    if value is not None and not value >= least:
        yield f"allocation.options.{key} must be at least {least}, got {value}"
