"""An independent count of arithmetic: the matrix products that a traced program holds, loops unrolled."""

import math

import jax


def product_flops(jaxpr, loop_trips=1):
    """2 x batch x rows x columns x contracted of every dot_general; a while loop runs `loop_trips` times."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            total += 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[i] for i in contracted)
        trips = {"scan": equation.params.get("length", 1), "while": loop_trips}.get(equation.primitive.name, 1)
        for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(parameter, "jaxpr", parameter)
            if hasattr(inner, "eqns"):
                total += trips * product_flops(inner, loop_trips)
    return total
