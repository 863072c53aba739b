"""Logits against transformers' own models, both ways."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.models.pretrained import load_pretrained, save_pretrained

torch = pytest.importorskip("torch", reason="parity with transformers needs torch")
import transformers  # noqa: E402

SIZES = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=False),
    "llama, tied, wide heads": lambda: transformers.LlamaConfig(**SIZES, tie_word_embeddings=True, head_dim=16),
    "llama3 rope": lambda: transformers.LlamaConfig(**SIZES, rope_theta=5e5, rope_scaling=LLAMA3),
    "qwen2": lambda: transformers.Qwen2Config(**SIZES, rope_theta=1e6, tie_word_embeddings=False),
}
TOKENS = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (2, 64))


def random_model(config):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def torch_logits(model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.numpy()


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_equal_those_of_transformers(tmp_path, name):
    theirs = random_model(CONFIGS[name]())
    theirs.save_pretrained(tmp_path / "theirs")
    model, params = load_pretrained(tmp_path / "theirs")
    with jax.default_matmul_precision("highest"):
        logits = model.apply({"params": params}, jnp.asarray(TOKENS))
    np.testing.assert_allclose(logits, torch_logits(theirs), atol=1e-4)

    save_pretrained(tmp_path / "ours", model, params)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    np.testing.assert_array_equal(torch_logits(again), torch_logits(theirs))
