"""An export goes to the hub whole, or the error says how much of it did. The hub is a fake, or a server of refusals."""

import contextlib
import fnmatch
import functools
import http.server
import threading
from pathlib import Path
from unittest import mock

import huggingface_hub
import pytest

from pods_jax import commands
from pods_jax.errors import UserError
from pods_jax.training import export, hub

REPO = "someone/policy"
FILES = ("config.json", "model.safetensors", "README.md", "adapter/adapter_config.json")


@pytest.fixture
def folder(tmp_path):
    for name in (*FILES, export.MARK, "model.safetensors.partial-1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


class Hub:
    """A hub that keeps one repository's files; a call that is named in `fails` raises."""

    def __init__(self, files=(), fails=""):
        self.files = set(files)
        self.fails = fails
        self.private = None

    def whoami(self):
        self._fail("whoami")

    def create_repo(self, repo_id, *, private, exist_ok):
        self._fail("create_repo")
        assert exist_ok
        self.private = private
        return f"https://hub.test/{repo_id}"

    def upload_folder(self, *, repo_id, folder_path, ignore_patterns, delete_patterns):
        def matches(name, patterns):
            return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)

        self.files = {name for name in self.files if not matches(name, delete_patterns)}
        self._fail("upload_folder")
        names = (str(path.relative_to(folder_path)) for path in Path(folder_path).rglob("*") if path.is_file())
        self.files |= {name for name in names if not matches(name, ignore_patterns)}

    def upload_file(self, *, repo_id, path_or_fileobj, path_in_repo):
        self._fail("upload_file")
        assert Path(path_or_fileobj).is_file()
        self.files.add(path_in_repo)

    def _fail(self, name):
        if name == self.fails:
            raise ConnectionError("the line went dead")


@pytest.fixture
def fake(monkeypatch):
    def make(**options):
        made = Hub(**options)
        api = mock.create_autospec(huggingface_hub.HfApi, instance=True)  # it knows the arguments of the real one
        for name in ("whoami", "create_repo", "upload_folder", "upload_file"):
            getattr(api, name).side_effect = getattr(made, name)
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: api)
        return made

    return make


def test_a_repository_holds_the_export_and_nothing_of_the_one_before(fake, folder):
    made = fake(files={"config.json", "model-00001-of-00002.safetensors", "adapter/old.json", "LICENSE"})
    assert hub.push(folder, REPO) == f"https://hub.test/{REPO}"
    assert made.files == {*FILES, "LICENSE"}
    assert made.private


@pytest.mark.parametrize(
    ("fails", "says"),
    [
        ("create_repo", f"nothing of it uploaded to {REPO}: ConnectionError: the line went dead"),
        ("upload_folder", f"its upload to {REPO} was not finished .without config.json it is incomplete.: Conn"),
        ("upload_file", f"its upload to {REPO} was not finished .without config.json it is incomplete.: Conn"),
    ],
)
def test_an_upload_that_ends_early_is_told_and_not_taken_for_a_model(fake, folder, fails, says):
    made = fake(files={} if fails == "create_repo" else {"config.json"}, fails=fails)
    with pytest.raises(UserError, match=says):
        hub.push(folder, REPO)
    assert "config.json" not in made.files


@pytest.mark.parametrize("repo", ["policy", "a/b/c", "", "https://hub.test/a/b"])
def test_what_is_no_id_is_refused(repo):
    with pytest.raises(UserError, match="a repository's id is 'owner/name'"):
        hub.refuse_hub(repo)


# ---------------------------------------------------------------- the real client


@contextlib.contextmanager
def refusing(status):
    """The address of a server that answers everything with a status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = answer

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def client(monkeypatch):
    def at(endpoint, token="hf_abc"):
        api = functools.partial(huggingface_hub.HfApi, endpoint=endpoint, token=token)
        monkeypatch.setattr(huggingface_hub, "HfApi", api)

    return at


@pytest.mark.parametrize(("status", "says"), [(401, "does not know the token"), (403, "no right to write there")])
def test_a_refusal_of_the_hub_is_one_line(client, folder, status, says):
    with refusing(status) as endpoint:
        client(endpoint)
        with pytest.raises(UserError, match=says):
            hub.refuse_hub(REPO)
        with pytest.raises(UserError, match=f"nothing of it uploaded to {REPO}: .*{says}"):
            hub.push(folder, REPO)


def test_no_network_and_no_token_are_told_before_anything_is_written(client, monkeypatch, tmp_path, capsys):
    with refusing(200) as endpoint:
        pass
    client(endpoint)
    with pytest.raises(UserError, match=rf"--push-to-hub {REPO}: \w*Error: .*"):
        hub.refuse_hub(REPO)
    client(endpoint, token=None)
    monkeypatch.setattr(huggingface_hub.hf_api, "get_token", lambda: None)
    monkeypatch.setattr(commands, "parse_policy", lambda parser: (parser.parse_args(), None))
    monkeypatch.setattr("sys.argv", ["export", "--workdir", "x", "--out", str(tmp_path / "o"), "--push-to-hub", REPO])
    with pytest.raises(SystemExit, match="2"):
        commands.export()
    assert capsys.readouterr().err == (
        f"error: --push-to-hub {REPO}: this machine has no token of the hub: set HF_TOKEN, or run `hf auth login`\n"
    )
    assert not (tmp_path / "o").exists()
