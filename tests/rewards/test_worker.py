import json
import subprocess
import sys

import pytest

LIMITS = {"columns": None, "limit_s": 5.0, "wall_limit_s": 50.0}
REQUESTS = [
    ({"prepare": "exact", "module": "pods_jax.rewards.verifiers.exact"}, ["ready", None]),
    ({"prepare": "exact", "module": "no_such_module"}, None),
    ({"prepare": "exacts", "module": "pods_jax.rewards.verifiers.exact"}, ["user error", None]),
    (
        {"verify": "exact", "output": " 1 ", "gold": "1"} | LIMITS,
        ["verdict", {"correct": True, "answer": "1", "reason": "match"}],
    ),
    ({"verify": "gsm8k", "output": "#### 1", "gold": "one"} | LIMITS, ["user error", None]),
]


@pytest.fixture(scope="module")
def replies():
    numbered = [{"number": 10 * place} | request for place, (request, _) in enumerate(REQUESTS)]
    lines = "".join(json.dumps(request) + "\n" for request in numbered)
    done = subprocess.run(
        [sys.executable, "-m", "pods_jax.rewards.worker"], input=lines, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines() if line]


def test_one_reply_for_each_request(replies):
    assert [reply[0] for reply in replies] == [0, 10, 20, 30, 40]


def test_replies_follow_the_protocol(replies):
    replies = [reply[1:] for reply in replies]
    assert replies[0] == REQUESTS[0][1]
    assert replies[1][0] == "exception"
    assert "ModuleNotFoundError" in replies[1][1]
    assert replies[2][0] == "user error"
    assert "did you mean 'exact'?" in replies[2][1]
    assert replies[3] == REQUESTS[3][1]
    assert replies[4][0] == "user error"
    assert "'one' is not a number" in replies[4][1]
