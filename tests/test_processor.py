"""The processor's name and kind, from a file as Linux has it, and without one."""

import os
import platform

from pods_jax import processor

INFO = "processor\t: {}\nvendor_id\t: Some\nmodel name\t: Some CPU 7\nflags\t\t: fpu sse\ncpu MHz\t\t: 24{}.1\n\n"


def test_every_core_of_one_kind_is_one_kind(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "_INFO", info)
    info.write_text(INFO.format(0, 0) + INFO.format(1, 9))
    assert processor.processor_name() == "Some CPU 7"
    assert processor.processor_kind() == ["flags\t\t: fpu sse", "model name\t: Some CPU 7"]
    info.write_text(INFO.format(0, 0).replace("sse", "avx"))
    assert processor.processor_kind() == ["flags\t\t: fpu avx", "model name\t: Some CPU 7"]


def test_other_systems_have_a_name_from_python(monkeypatch, tmp_path):
    monkeypatch.setattr(processor, "_INFO", tmp_path / "none")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert processor.processor_name() == "arm"
    assert processor.processor_kind() == ["arm"]


def test_cores_where_the_system_does_not_say(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "sched_setaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert processor.cores() == [0, 1, 2]
    assert not processor.can_pin()
