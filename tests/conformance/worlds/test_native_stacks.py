"""Native stacks: which tool is asked, and what is taken of what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.conformance.worlds.processes.native_stacks import native_stacks, shown, tool

SPIED = """\
Process 9707: python3 waits.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 9707 (idle): "MainThread"
    0x7f17fa8a3f16 (libc.so.6)
    PyThread_acquire_lock_timed (libpython3.11.so.1.0)
    wait (threading.py:327)
    <module> (waits.py:6)
Thread 9749 (idle): "Thread-1 (wait)"
    read (libc.so.6)
    mine::Ring::recv(int, unsigned long) (mine/ring.cc:31)
    wait (waits.py:3)
"""
EU = """\
PID 77 - process
TID 77:
#0  0x00007f17fa8aed90 read - /usr/lib/libc.so.6
#1  0x00007f17fa8aed91 os_read - /usr/lib/libpython3.11.so
#2  0x00007f17fa8aed92 _PyEval_EvalFrameDefault - /usr/lib/libpython3.11.so
"""


def installed(folder: Path, name: str, says: str = "") -> None:
    """Put a program there that says something, whatever it is asked."""
    (folder / "said").write_text(says, encoding="utf-8")
    path = folder / name
    path.write_text(f"#!/bin/sh\nexec /bin/cat {folder / 'said'}\n", encoding="utf-8")
    path.chmod(0o755)


def test_what_knows_python_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tool() is None
    assert native_stacks([1]) == {}
    for name in ("gdb", "eu-stack", "py-spy"):
        installed(tmp_path, name)
        found = tool()
        assert found is not None
        assert found[0] == name


def test_frames_of_python_and_of_libraries_are_told_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    installed(tmp_path, "py-spy", SPIED)
    assert native_stacks([9707]) == {
        9707: (
            "Thread 9707",
            "PyThread_acquire_lock_timed of libpython3.11.so.1.0",
            "wait (threading.py:327)",
            "<module> (waits.py:6)",
            "Thread 9749",
            "read of libc.so.6",
            "mine::Ring::recv(int, unsigned long) (mine/ring.cc:31)",
            "wait (waits.py:3)",
        )
    }


def test_where_python_is_not_known_what_is_below_it_is_told() -> None:
    assert list(shown(EU.splitlines())) == ["TID 77", "read", "os_read"]
