"""XLA flags for programs that compile much and compute little, as tests do; as a script it prints them.

XLA's optimisations and its newer code generator cost such programs more than they give. JAX refuses flags that it does
not know: from 0.11 on there is no other code generator.
"""

import jax

FLAGS = ["--xla_backend_optimization_level=0", "--xla_cpu_parallel_codegen_split_count=1"]
if jax.version.__version_info__ < (0, 11):
    FLAGS.append("--xla_cpu_use_fusion_emitters=false")

if __name__ == "__main__":
    print(*FLAGS)
