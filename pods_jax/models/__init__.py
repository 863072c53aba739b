"""The decoder and its weights."""

from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.loading import load_pretrained, save_pretrained

__all__ = ["Decoder", "ModelConfig", "init_params", "load_pretrained", "save_pretrained"]
