"""Checks before anything slow is loaded, and a description of what a config would train, and on what."""

import importlib.util
from pathlib import Path

from pods_jax.config.load import origin_of
from pods_jax.config.schema import Config, changes, to_dict
from pods_jax.config.validate import validate_on_devices
from pods_jax.data import Example
from pods_jax.errors import UserError
from pods_jax.io import local_path, refuse_unwritable
from pods_jax.model_files import resolve_model_path
from pods_jax.parallel import make_meshes, num_shards
from pods_jax.parallel.hosts import is_main
from pods_jax.training.prompts import RunData, load_data
from pods_jax.training.reporting import Reporter
from pods_jax.training.workdir import refuse_other_config


def check(config: Config, workdir: str | Path) -> None:
    """Finds what would end a run after minutes of loading, in a second.

    Raises:
      UserError: the mesh does not fit the devices or the batch, the workdir is another config's or cannot be written,
        a model or adapter is not there, or an extra is not installed.
    """
    mesh, _ = make_meshes(config.mesh)
    validate_on_devices(config, num_shards(mesh))
    path = local_path(workdir, "workdir")
    if is_main():  # the others write nothing there
        refuse_unwritable(path, "workdir")
    refuse_other_config(path, config)
    if config.model.path is not None:
        resolve_model_path(config.model.path)
    if config.lora.quantize_base and importlib.util.find_spec("qwix") is None:
        kind = config.lora.quantize_base
        raise UserError(f"lora.quantize_base = '{kind}' needs the package qwix: pip install -e '.[quantize]'")


def describe(config: Config, spec: str, workdir: str | Path, reporter: Reporter) -> None:
    """Checks all that can be checked without weights, and prints what a run would do; writes nothing.

    It says where the config comes from and what it changes, and where model and data are and how much there is. spec:
    the config's file and argument.

    Raises:
      UserError: as `check`, and for bad data.
    """
    check(config, workdir)
    data = load_data(config)
    reporter.message(f"config   {origin_of(spec)['config']}; what differs from the defaults:")
    for key, value in changes(to_dict(config)).items():
        reporter.message(f"         {key} = {value!r}")
    reporter.data(config, data)
    for line in sources(config, data):
        reporter.message(line)
    reporter.message(f"workdir  {local_path(workdir, 'workdir')}")


def sources(config: Config, data: RunData) -> list[str]:
    """Lines that say where the model and each set of problems come from, and how long their prompts are."""
    model = config.model.path
    sets = {"training": data.train, "test": data.test, **data.others}
    return [f"model    {'from scratch' if model is None else f'{model}: {resolve_model_path(model)}'}"] + [
        f"{'prompts':8} {name}: {len(x.examples):,} from {place(x.examples[0])}, {min(map(len, x.tokens))} to "
        f"{max(map(len, x.tokens))} tokens"
        for name, x in sets.items()
    ]


def place(example: Example) -> str:
    """The file or hub split that an example comes from."""
    return example.where.rpartition(":")[0] or "a generator"
