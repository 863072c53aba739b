"""pods_jax: where should an LLM's RL rollouts be spent? PODS and Pilot-Commit in JAX."""

import sys

__version__ = "0.1.0"

if sys.platform == "win32":  # here, as the first module that lacks something there would be a riddle
    raise ImportError("pods_jax needs Linux or macOS (file locks, process groups): on Windows, run it in WSL 2")
