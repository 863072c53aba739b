import dataclasses

import jax
import pytest
from ml_collections import FrozenConfigDict

from pods_jax.config import Config, DataConfig, ModelSection
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig, init_params, save_pretrained
from pods_jax.parallel import make_mesh
from pods_jax.training.setup import load_policy, load_task

ADDITION = {"base": 10, "digits": 2, "carry_prob": 0.3, "num_train": 4, "num_test": 4}


@pytest.fixture(scope="module")
def task():
    return load_task(dataclasses.replace(Config(), data=DataConfig(options=FrozenConfigDict(ADDITION))))


@pytest.mark.parametrize("missing_rows", [0, 1])
def test_a_tokenizer_with_more_ids_than_the_embedding_has_rows_is_refused(tmp_path, task, missing_rows):
    rows = task.tokenizer.vocab_size - missing_rows
    model = Decoder(ModelConfig(rows, 8, 16, 2, 2, 1, 4))
    save_pretrained(tmp_path, model, init_params(model, jax.random.key(0)))
    config = Config(model=ModelSection(path=str(tmp_path)))
    if not missing_rows:
        assert load_policy(config, task, make_mesh(), print)[0].config == model.config
        return
    with pytest.raises(UserError, match=f"ids up to {rows}, the embedding {rows} rows"):
        load_policy(config, task, make_mesh(), print)
