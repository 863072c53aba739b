"""The decoder and its weights."""

from pods_jax.models.decoder import Decoder, ModelConfig, init_params

__all__ = ["Decoder", "ModelConfig", "init_params"]
