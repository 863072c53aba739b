"""A small experiment that every end-to-end test starts from: seconds to compile, milliseconds a step."""

import atexit
import gc
import os
import shutil
import signal
import tempfile

import jax
import pytest
from hypothesis import settings
from xla_flags import FLAGS

os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *FLAGS]).strip()  # before JAX starts

from pods_jax.config.schema import default_config
from pods_jax.errors import UserError
from pods_jax.model_files import SMOLLM2, resolve_model_path


def _share_programs():
    """Tests, and the processes that they start, compile many programs more than once: JAX keeps them in a folder.

    Every worker of pytest has a folder of its own, since JAX writes it without a lock.
    """
    folder = tempfile.mkdtemp(prefix="programs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    options = {
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in options.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


_share_programs()
gc.set_threshold(200_000, 20, 100)  # tracing makes many small objects: it takes an eighth less time
settings.register_profile("pods_jax", deadline=None, derandomize=True, max_examples=40)
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.load_profile("pods_jax")


@pytest.fixture(autouse=True, scope="module")
def _forget_programs():
    """Every compiled program holds memory maps, of which Linux allows a process 65,530."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def smollm2_file():
    """The weights of SmolLM2; without them the test is skipped."""
    try:
        return resolve_model_path(SMOLLM2)
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture
def tiny():
    c = default_config()
    c.data.options = {"base": 3, "digits": 2, "num_train": 24, "num_test": 8, "unseen_fraction": 0.25}
    c.model.hidden_size, c.model.intermediate_size, c.model.num_hidden_layers = 16, 32, 1
    c.model.num_attention_heads, c.model.num_key_value_heads = 2, 1
    c.rollout.num_prompts, c.rollout.num_generations, c.selection.num_kept = 4, 8, 4
    c.rollout.max_prompt_length, c.rollout.max_completion_length = 5, 4
    c.optimizer.learning_rate = 1e-2
    c.training.num_steps, c.training.eval_every_steps, c.training.checkpoint_every_steps = 6, 3, 2
    c.evaluation.num_prompts, c.evaluation.num_samples, c.evaluation.greedy = 4, 8, False  # as a step: one program
    return c


@pytest.fixture(params=["ignored", "blocked"])
def deaf_to_sigprof(request):
    """This process as a profiler may leave it; the processes that it starts are so at first."""
    if request.param == "ignored":
        before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
        yield
        signal.signal(signal.SIGPROF, before)
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
        yield
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
