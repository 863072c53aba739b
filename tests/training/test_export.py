import json

import jax
import numpy as np
import pytest
import tokenizers
import transformers

from pods_jax.config.schema import from_mapping
from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.errors import UserError
from pods_jax.models import Decoder, init_params, load_pretrained, save_pretrained
from pods_jax.models.loading import own_dtype
from pods_jax.models.peft_adapter import load_adapter
from pods_jax.rollout.weights import unstacked
from pods_jax.training import Reporter, export_checkpoint, train
from pods_jax.training.checkpoint import restored_run
from pods_jax.training.prompts import load_data
from pods_jax.training.run import scratch_config


def test_a_lora_run_is_exported_merged_and_as_an_adapter(tiny, tmp_path):
    tiny.lora.rank, tiny.training.num_steps = 2, 1
    config, _ = from_mapping(tiny)
    with pytest.raises(UserError, match="holds no checkpoint"):
        export_checkpoint(config, tmp_path / "run", tmp_path / "out", Reporter())
    train(config, tmp_path / "run", Reporter())
    export_checkpoint(config, tmp_path / "run", tmp_path / "out", Reporter())
    with restored_run(config, tmp_path / "run", Reporter()) as run:
        model, params = load_pretrained(tmp_path / "out")
        assert model.config == run.model.config
        jax.tree.map(np.testing.assert_array_equal, unstacked(params), run.sampling_params())
        adapters, lora = load_adapter(tmp_path / "out" / "adapter", model.config)
        assert lora == config.lora
        assert f"after {run.version} steps" in (tmp_path / "out" / "README.md").read_text()
        jax.tree.map(np.testing.assert_array_equal, adapters, run.state.params)
    export_checkpoint(config, tmp_path / "run", tmp_path / "out", Reporter())
    with pytest.raises(UserError, match="is, or lies in, the workdir"):
        export_checkpoint(config, tmp_path / "run", tmp_path / "run", Reporter())
    with pytest.raises(UserError, match="belongs to another config"):
        train(config, tmp_path / "out", Reporter())
    train(config, tmp_path / "run", Reporter())


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_an_export_has_the_precision_and_the_ids_of_the_pretrained_model(tiny, tmp_path, dtype):
    config, _ = from_mapping(tiny)
    tokenizer = load_data(config).tokenizer
    vocab = {"<pad>": 0, "<eos>": 1} | {c: tokenizer.encode(c)[0] for c in "012+= " if c in tokenizer._ids}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, "<pad>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    backend.add_special_tokens(["<pad>", "<eos>"])
    model = Decoder(scratch_config(config, tokenizer))
    source = tmp_path / "model"
    save_pretrained(source, model, init_params(model, jax.random.key(0)), dtype="bfloat16")
    backend.save(str(source / "tokenizer.json"))
    (source / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>", "pad_token": "<pad>"}))
    raw = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(raw | {"eos_token_id": [1, 2]}))
    tiny.model.path, tiny.training.num_steps, tiny.lora.rank = str(source), 1, 2
    config, _ = from_mapping(tiny)
    train(config, tmp_path / "run", Reporter())
    export_checkpoint(config, tmp_path / "run", tmp_path / "out", Reporter(), dtype=dtype)
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["torch_dtype"] == own_dtype(tmp_path / "out") == (dtype or "bfloat16")
    assert (written["eos_token_id"], written["pad_token_id"]) == ([1, 2], 0)
    ends = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert (ends.eos_token_id, ends.pad_token_id) == ([1, 2], 0)
    assert load_tokenizer(tmp_path / "out").eos_ids == (1, 2)
