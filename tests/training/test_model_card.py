import dataclasses

import pytest
from huggingface_hub import ModelCard

from pods_jax.config.schema import Config, LoraConfig, ModelSection
from pods_jax.training.model_card import model_card

EVALS = [{"step": 0, "accuracy": 0.25, "greedy_accuracy": 0.5}, {"step": 40, "accuracy": 0.75, "greedy_accuracy": 1.0}]


def config(path, rank=0):
    return dataclasses.replace(Config(), model=ModelSection(path=path), lora=LoraConfig(rank=rank, alpha=32.0))


@pytest.mark.parametrize(("path", "base"), [("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"), (None, None), ("/my/model", None)])
def test_the_hub_reads_the_card(path, base):
    card = ModelCard(model_card(config(path), 40, EVALS))
    assert card.data.base_model == base
    assert card.data.library_name == "transformers"
    title = base or path or "A policy from scratch"
    assert f"# {title}, after 40 steps" in card.text
    assert "| accuracy | 25.0% | 75.0% |\n| greedy accuracy | 50.0% | 100.0% |" in card.text


def test_what_was_trained_and_what_was_measured():
    assert "LoRA of rank 16, scale 2, merged" in model_card(config("a/b", rank=16), 40, EVALS)
    assert "all weights" in model_card(config("a/b"), 40, EVALS)
    between = model_card(config("a/b"), 30, EVALS)
    assert "| on the test problems | step 0 |" in between
    assert "test problems" not in model_card(config("a/b"), 30, [])
