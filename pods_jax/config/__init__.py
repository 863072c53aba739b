"""Experiments as configs: `schema` has the keys, and the files beside it load, combine and validate them."""

from pods_jax.config.schema import Config, default_config, from_mapping, to_dict

__all__ = ["Config", "default_config", "freeze", "from_mapping", "to_dict"]


def __getattr__(name: str):
    """`freeze` imports every family of parts, of which some import this package."""
    if name == "freeze":
        from pods_jax.config.load import freeze

        return freeze
    raise AttributeError(f"module {__name__} has no attribute {name}")
