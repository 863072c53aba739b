"""A language model with a tool: the calculator's answers are right, and stand where the model sees them."""

from pathlib import Path

import jax
import numpy as np
import pytest

from pods_jax.config.load import load_config
from pods_jax.environments.calculator import Calculator
from pods_jax.groups import Request
from pods_jax.rewards import RewardPool
from pods_jax.rollout.engine import serving
from pods_jax.training.experience import orders_of, training_params, verified_groups
from pods_jax.training.prompts import load_data
from pods_jax.training.run import make_run

CONFIG = str(Path(__file__).parents[2] / "configs" / "smollm2_calculator.py")


def test_the_config_is_valid_and_pays_for_calls():
    config = load_config(CONFIG)
    assert config.environment.name == "calculator"
    assert config.environment.max_turns == 2
    assert dict(config.reward.parts) == {"correctness": 1.0, "environment": 1.0}


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2_file")
def test_smollm2_reads_what_the_calculator_says():
    pytest.importorskip("reasoning_gym", reason="the extra 'smollm2' is not installed")
    config = load_config(CONFIG, ["data.options.num_train=8", "data.options.num_test=2"])
    with RewardPool(1) as pool:
        run = make_run(config, load_data(config), pool, lambda *_: None)
        requests = [Request(prompt, 16) for prompt in run.stream.next(2)]
        examples = run.rewarder.examples_of([request.prompt for request in requests])
        with serving(run.engine, 0):
            orders = orders_of(requests, jax.random.key(0))
            completions = run.generate(orders, training_params(config.rollout), examples)
        groups = verified_groups(run.rewarder, requests, completions, 0)
    decode = run.data.tokenizer.decode
    called = 0
    for group in groups:
        for tokens, mask, length, paid in zip(
            group.tokens, group.loss_mask, group.lengths, group.parts["environment"], strict=True
        ):
            cuts = 1 + np.flatnonzero(np.diff(mask[:length]))
            turn, *rest = (decode(ids.tolist()) for ids in np.split(tokens[:length], cuts))
            if not rest:
                continue
            said, reward, done = Calculator(call_reward=0.2).step(turn)
            called += 1
            assert not done
            assert rest[0] == f"\nuser\n{said}\nassistant\n"
            assert paid == pytest.approx(reward)
    assert called
