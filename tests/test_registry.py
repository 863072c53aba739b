import pytest

from pods_jax.errors import UserError
from pods_jax.registry import Registry


def test_a_registry_is_a_mapping_of_what_was_registered():
    parts = Registry("part")
    parts.register("one")(1)
    assert dict(parts) == {"one": 1}
    assert "two" not in parts


def test_an_unknown_name_gets_the_nearest_or_all():
    parts = Registry("part")
    parts.register("max_variance")(1)
    parts.register("random")(2)
    with pytest.raises(UserError, match="unknown part 'max_varience': did you mean 'max_variance'"):
        parts["max_varience"]
    with pytest.raises(UserError, match="known: max_variance, random"):
        parts["zzz"]


def test_a_name_is_taken_once():
    parts = Registry("part")
    parts.register("one")(1)
    with pytest.raises(ValueError, match="registered twice"):
        parts.register("one")(2)
