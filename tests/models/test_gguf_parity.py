"""SmolLM2's GGUF file against transformers' own reading of it."""

import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.models import load_pretrained

torch = pytest.importorskip("torch", reason="parity with transformers needs torch: the `parity` extra")
import transformers  # noqa: E402


@pytest.mark.slow
def test_smollm2_gguf_equals_that_of_transformers(smollm2_file):
    tokens = load_tokenizer(smollm2_file).encode_prompt(
        "Natalia sold 48 clips in April and half as many in May. How many in all?"
    )
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        smollm2_file.parent, gguf_file=smollm2_file.name, dtype=torch.float32
    )
    with torch.no_grad():
        expected = theirs(torch.tensor([tokens])).logits.numpy()
    model, params = load_pretrained(smollm2_file)
    logits = model.apply({"params": params}, jnp.array([tokens]))
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-3)
