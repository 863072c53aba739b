"""pods_jax: where should an LLM's RL rollouts be spent? PODS and Pilot-Commit in JAX."""

__version__ = "0.1.0"
