import jax
import numpy as np
import pytest

from pods_jax.config.schema import from_mapping
from pods_jax.errors import UserError
from pods_jax.models import load_pretrained
from pods_jax.models.peft_adapter import load_adapter
from pods_jax.rollout.weights import unstacked
from pods_jax.training import Reporter, export_checkpoint, train
from pods_jax.training.checkpoint import restored_run


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
        jax.tree.map(np.testing.assert_array_equal, adapters, run.state.params)
    export_checkpoint(config, tmp_path / "run", tmp_path / "out", Reporter())
    with pytest.raises(UserError, match="is, or lies in, the workdir"):
        export_checkpoint(config, tmp_path / "run", tmp_path / "run", Reporter())
    with pytest.raises(UserError, match="belongs to another config"):
        train(config, tmp_path / "out", Reporter())
    train(config, tmp_path / "run", Reporter())
