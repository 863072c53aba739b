"""Layouts that are suggested where the links bound a phase; nothing is compiled."""

from unittest.mock import Mock

import pytest

from pods_jax.config.schema import Config, MeshConfig
from pods_jax.errors import UserError
from pods_jax.planning import layouts
from pods_jax.planning.layouts import suggestions
from pods_jax.planning.run_shapes import Program, RunShapes
from pods_jax.planning.step_plan import Memory, Phase, StepPlan


def plan(name, seconds, bound, fits=True, **shape):
    """A plan of one phase; of its run only the config and the shape of the mesh are there."""
    mesh = Mock(shape={"data": 1, "fsdp": 8, "tensor": 1} | shape)
    run = Mock(spec=RunShapes, config=Config(mesh=MeshConfig(data=1, fsdp=-1)), mesh=mesh, sampling_mesh=mesh)
    program = Program(name, lambda: None, {}, {}, 0, 0.0)
    phase = Phase(program, Memory(0, 0, 1, 0, 0, fits), {}, 0.0, {bound: seconds}, 0.0)
    return StepPlan(run, "v5p:2x2x2", "v5p", [phase])


@pytest.fixture
def compiled(monkeypatch):
    """The meshes that are tried, with what comes of each: seconds, or an error."""
    tried = []
    outcomes = {}

    def plan_step(config, topology, devices, say, names):
        mesh = config.mesh
        tried.append(dict(mesh.sampling) or (mesh.data, mesh.fsdp))
        outcome = outcomes[len(tried)]
        if isinstance(outcome, Exception):
            raise outcome
        return plan(names[0], abs(outcome), "memory", fits=outcome > 0)

    monkeypatch.setattr(layouts, "plan_step", plan_step)
    return tried, outcomes


def test_sampling_with_the_first_layout_that_fits_and_is_faster(compiled):
    tried, outcomes = compiled
    outcomes |= {1: -1.0, 2: UserError("no such mesh"), 3: 900.0, 4: 124.0}
    [found] = suggestions(plan("sampling", 764.0, "interconnect"), None, lambda line: None)
    assert tried == [{"tensor": 1}, {"tensor": 2}, {"tensor": 4}, {"tensor": 8}]
    assert found == ("sampling", "--config.mesh.sampling=\"{'tensor': 8}\"", 764.0, 124.0)


def test_an_update_with_more_data_and_less_fsdp(compiled):
    tried, outcomes = compiled
    outcomes |= {1: 30.0, 2: 12.0}
    [found] = suggestions(plan("update", 20.0, "interconnect"), None, lambda line: None)
    assert tried == [(2, 4), (4, 2)]
    assert found.options == "--config.mesh.data=4 --config.mesh.fsdp=2"


def test_nothing_is_tried_where_the_links_are_not_the_bound(compiled):
    assert not list(suggestions(plan("sampling", 764.0, "memory"), None, lambda line: None))


def test_a_layout_is_not_suggested_beside_itself(compiled):
    _, outcomes = compiled
    outcomes |= {1: 900.0, 2: 900.0, 3: 900.0}
    assert not list(suggestions(plan("sampling", 764.0, "interconnect", fsdp=1), None, lambda line: None))
