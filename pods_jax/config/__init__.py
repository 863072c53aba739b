"""Experiments as configs. The schema is here; loading, methods and validation are in the files beside it."""

from pods_jax.config.schema import Config, default_config, from_mapping, to_dict

__all__ = ["Config", "default_config", "from_mapping", "to_dict"]
