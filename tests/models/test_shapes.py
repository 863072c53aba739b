"""The shapes of published models, against what is published of them apart from their configs."""

import dataclasses
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest

from pods_jax.config.load import load_config
from pods_jax.model_files import SMOLLM2
from pods_jax.models import gguf_file
from pods_jax.models.config_json import config_json
from pods_jax.models.decoder import is_weight, model_weights
from pods_jax.models.shapes import SHAPES, model_shape

ROOT = Path(__file__).parents[2]
PARAMETERS = {  # of the hub's safetensors files: the sum of their tensors' sizes
    "Qwen/Qwen2.5-3B-Instruct": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen2.5-Math-1.5B": 1_543_714_304,
    "Qwen/Qwen3-4B": 4_022_468_096,
    "Qwen/Qwen3-4B-Base": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "Qwen/Qwen3-14B": 14_768_307_200,
    "meta-llama/Llama-3.2-3B-Instruct": 3_212_749_824,
    "smollm2-135m": 134_515_008,
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_has_the_published_number_of_parameters(name):
    weights = jax.tree.leaves(model_weights(SHAPES[name]), is_leaf=is_weight)
    assert sum(math.prod(w.shape) for w in weights) == PARAMETERS[name]


def test_the_shape_of_a_folder_is_read_from_its_config(tmp_path):
    config = model_shape("Qwen/Qwen3-4B")
    (tmp_path / "config.json").write_text(json.dumps(config_json(config, "bfloat16", {})))
    assert model_shape(tmp_path) == config


def test_the_packaged_models_shape_is_that_of_its_file(smollm2_file):
    stored = gguf_file.open_gguf(smollm2_file).config
    assert stored.rms_norm_eps == np.float32(SHAPES[SMOLLM2].rms_norm_eps)
    assert dataclasses.replace(stored, rms_norm_eps=SHAPES[SMOLLM2].rms_norm_eps) == SHAPES[SMOLLM2]


def test_every_model_of_the_configs_has_a_shape():
    files = sorted((ROOT / "configs").rglob("*.py"))
    paths = {load_config(str(file)).model.path for file in files} - {None}
    assert len(paths) >= 7
    assert paths <= set(SHAPES)
