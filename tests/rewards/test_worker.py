import json
import subprocess
import sys

import pytest

REQUESTS = [
    ({"prepare": "exact", "module": "pods_jax.rewards.verifiers.exact"}, ["ready", None]),
    ({"prepare": "exact", "module": "no_such_module"}, None),
    ({"prepare": "exacts", "module": "pods_jax.rewards.verifiers.exact"}, ["user error", None]),
    (
        {"judge": "exact", "output": " 1 ", "gold": "1", "deadline_s": 5.0},
        ["verdict", {"correct": True, "answer": "1", "reason": "match"}],
    ),
    ({"judge": "gsm8k", "output": "#### 1", "gold": "one", "deadline_s": 5.0}, ["user error", None]),
]


@pytest.fixture(scope="module")
def replies():
    lines = "".join(json.dumps(request) + "\n" for request, _ in REQUESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pods_jax.rewards.worker"], input=lines, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_reply_for_each_request(replies):
    assert len(replies) == len(REQUESTS)


def test_replies_follow_the_protocol(replies):
    assert replies[0] == REQUESTS[0][1]
    assert replies[1][0] == "exception"
    assert "ModuleNotFoundError" in replies[1][1]
    assert replies[2][0] == "user error"
    assert "did you mean 'exact'?" in replies[2][1]
    assert replies[3] == REQUESTS[3][1]
    assert replies[4][0] == "user error"
    assert "'one' is not a number" in replies[4][1]
