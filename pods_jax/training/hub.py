"""An export on the Hugging Face hub."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

from pods_jax.errors import UserError
from pods_jax.fields import one_line
from pods_jax.io import PARTIAL
from pods_jax.model_files import HUB_ID
from pods_jax.training.export import MARK

LAST = "config.json"
"""The file that is uploaded last: without it no tool takes a repository for a model."""

REPLACED = [LAST, "model*.safetensors", "model.safetensors.index.json", "adapter/*"]
"""Files of an earlier export, which would be read beside those of this one."""

LOCAL = [LAST, MARK, f"*{PARTIAL}*"]
"""Files of the folder that are not uploaded with the others, or not at all."""


def refuse_hub(repo: str) -> None:
    """Asks the hub whose token this machine has. It makes nothing.

    Raises:
      UserError: `repo` is no id "owner/name"; there is no token, or the hub does not know it; there is no network.
    """
    if not HUB_ID.fullmatch(repo):
        raise UserError(f"--push-to-hub {repo}: a repository's id is 'owner/name'")
    with _refused(f"--push-to-hub {repo}"):
        huggingface_hub.HfApi().whoami()


def push(folder: Path, repo: str) -> str:
    """Uploads an export to a repository, which is made, private, where there is none; returns its address.

    Weights and adapter replace those that are there. The old config.json goes first and the new one comes last, so a
    repository that has one is complete.

    Raises:
      UserError: the hub refuses, or the connection ends.
    """
    api = huggingface_hub.HfApi()
    with _refused(f"{folder} is written, and nothing of it uploaded to {repo}"):
        url = api.create_repo(repo, private=True, exist_ok=True)
    incomplete = f"{folder} is written, but its upload to {repo} was not finished (without {LAST} it is incomplete)"
    with _refused(incomplete):
        api.upload_folder(repo_id=repo, folder_path=folder, ignore_patterns=LOCAL, delete_patterns=REPLACED)
        api.upload_file(repo_id=repo, path_or_fileobj=folder / LAST, path_in_repo=LAST)
    return str(url)


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    """Turns a refusal of the hub, or of the network, into a UserError that begins with `what`."""
    try:
        yield
    except (OSError, ValueError, RuntimeError, *HfHubHTTPError.__bases__) as error:  # the last: those of its transport
        raise UserError(f"{what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, LocalTokenNotFoundError):
        return "this machine has no token of the hub: set HF_TOKEN, or run `hf auth login`"
    if status == 401:
        return "the hub does not know the token: set HF_TOKEN, or run `hf auth login`"
    if status == 403:
        return "the token has no right to write there"
    return one_line(f"{type(error).__name__}: {error}")
