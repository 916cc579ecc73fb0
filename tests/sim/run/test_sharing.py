"""Processes of one node that share memory, events and pools by CUDA IPC and by exported pools."""

from __future__ import annotations

from collections.abc import Callable

from tests.sim.run.conftest import Ran, program, python

SimRun = Callable[..., Ran]


def test_memory_and_an_event_are_shared_by_ipc(sim_run: SimRun) -> None:
    ran = sim_run(3, program("ipc"))
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == [f"[{rank}] shared" for rank in range(3)]
    assert ran.report["used_afterwards"]["memory_bytes"] == 0


def test_ones_own_handles_cannot_be_opened(sim_run: SimRun) -> None:
    ran = sim_run(
        1,
        python(
            "start(0)\nmemory, event = answer('cuMemAlloc_v2', 100), answer('cuEventCreate', 6)\n"
            "value = ctypes.c_uint64()\n"
            "for kind, version, of in (('Mem', '_v2', memory), ('Event', '', event)):\n"
            "    handle = IpcHandle.from_buffer_copy(ipc_handle(f'cuIpcGet{kind}Handle', of))\n"
            "    assert call(f'cuIpcOpen{kind}Handle{version}', ctypes.byref(value), handle, 1) == 201\n"
            "ok('cuMemFree_v2', memory)\nok('cuEventDestroy_v2', event)"
        ),
    )
    assert ran.texts("swallowed") == [
        f"cuIpcOpen{kind}Handle answered CUDA_ERROR_INVALID_CONTEXT, and the exit code is 0"
        for kind in ("Event", "Mem")
    ]


def test_memory_that_is_freed_before_it_is_closed_elsewhere(sim_run: SimRun) -> None:
    ran = sim_run(2, program("ipc", "early"))
    assert ran.code == 1
    assert ran.kinds(0) == ["freed_while_open"]
    assert [finding["text"] for finding in ran.report["findings"] if finding["rank"] == 1] == [
        "cuIpcOpenMemHandle answered CUDA_ERROR_INVALID_VALUE, and the exit code is 0"
    ]
    assert ran.report["used_afterwards"]["memory_bytes"] == 0


def test_an_importer_goes_on_when_the_exporter_has_ended(sim_run: SimRun) -> None:
    ran = sim_run(2, program("ipc", "gone"))
    assert sorted(ran.out.splitlines()) == ["[1] shared"], ran.err
    assert ran.report["used_afterwards"]["memory_bytes"] == 0


def test_a_pool_is_shared_by_a_descriptor(sim_run: SimRun) -> None:
    ran = sim_run(3, program("pool"))
    assert ran.code == 0, ran.err
    assert sorted(ran.out.splitlines()) == [f"[{rank}] shared" for rank in range(3)]
    assert ran.report["used_afterwards"]["memory_bytes"] == 0


def test_a_pool_and_memory_of_it_that_are_alive_are_named(sim_run: SimRun) -> None:
    ran = sim_run(
        1,
        python(
            "start(0)\npool = answer('cuMemPoolCreate', struct.pack('iiiiQQHxx', 1, 0, 1, 0, 0, 0, 0) + bytes(56))\n"
            "answer('cuMemAllocFromPoolAsync', 1000, pool, None)\nok('cuCtxSynchronize')"
        ),
    )
    assert ran.code == 1
    assert ran.texts("alive") == [
        "1 plain made by cuMemAllocFromPoolAsync, 1000 bytes",
        "1 pool made by cuMemPoolCreate",
    ]
