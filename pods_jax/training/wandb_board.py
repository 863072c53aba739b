"""A run at Weights & Biases, for those who name a project in `logging.wandb`."""

import html
import importlib.util
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pods_jax.config.schema import Config, to_dict
from pods_jax.errors import UserError
from pods_jax.fields import one_line
from pods_jax.io import writing


def refuse_missing_package(config: Config) -> None:
    """Raises a UserError if the config names a project and Weights & Biases is not installed."""
    if config.logging.wandb and importlib.util.find_spec("wandb") is None:
        raise UserError(f"logging.wandb = {config.logging.wandb!r} needs its extra: pip install 'pods_jax[wandb]'")


class WandbBoard:
    """A run at Weights & Biases, one a workdir, which a resumed run continues: its later steps are logged anew.

    What goes wrong after the start costs the board, and not the run.
    """

    def __init__(self, project: str, config: Config, workdir: Path, note: Callable[[str], None]):
        """note: gets a line if the board ends.

        Raises:
          UserError: Weights & Biases cannot be reached, or does not know the user.
        """
        import wandb  # of the extra `wandb`

        self._note = note
        self._html = wandb.Html
        settings = wandb.Settings(console="off")  # it would take the place of stdout
        try:
            self._run = wandb.init(
                project=project, name=workdir.name, id=_run_id(workdir), resume="allow", dir=str(workdir),
                config=to_dict(config), settings=settings,
            )  # fmt: skip
        except wandb.Error as error:
            advice = "WANDB_MODE=offline keeps it in the workdir, and `wandb sync` sends it later"
            raise UserError(f"logging.wandb = {project!r}: {one_line(error)} ({advice})") from error
        self._run.define_metric("*", step_metric="step")

    def add(self, scalars: Mapping[str, float], step: int) -> None:
        """Sends numbers by name."""
        self._send({**scalars, "step": step})

    def add_text(self, name: str, content: str, step: int) -> None:
        """Sends a text that is shown as it is."""
        self._send({name: self._html(f"<pre>{html.escape(content)}</pre>"), "step": step})

    def close(self) -> None:
        """Sends what is left."""
        self._guarded(lambda: self._run.finish())

    def _send(self, values: Mapping[str, Any]) -> None:
        self._guarded(lambda: self._run.log(dict(values)))

    def _guarded(self, action: Callable[[], None]) -> None:
        if self._run is None:
            return
        try:
            action()
        except Exception as error:  # whatever its threads, processes and servers come up with
            self._run = None
            self._note(f"note     no more Weights & Biases: {one_line(error)}")


def _run_id(workdir: Path) -> str:
    """The name of the workdir's run at Weights & Biases."""
    file = workdir / "wandb_run_id"
    if not file.is_file():
        with writing(workdir):
            file.write_text(secrets.token_hex(8), encoding="utf-8")
    return file.read_text(encoding="utf-8")
