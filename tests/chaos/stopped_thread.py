# SPDX-License-Identifier: Apache-2.0
"""Stops one thread of another process, as a lock that nobody gives back would, while the others
run on. By ptrace: the process needs no hook for it, and ends as usual if it is killed meanwhile."""
import ctypes
import os
import pathlib
import time

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000  # waitpid also for threads that are no children

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request, tid):
    if _libc.ptrace(request, tid, None, None) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def find_thread(pid, name):
    """Its id; a thread that has just been started takes its name a moment later."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            try:
                if (task / "comm").read_text().strip() == name:
                    return int(task.name)
            except FileNotFoundError:
                pass  # it ended meanwhile
        time.sleep(0.01)  # polls another process; nothing to be notified by
    raise LookupError(f"process {pid} has no thread {name}")


class StoppedThread:
    """The thread stands still from here to resume(), which the same thread of ours must call."""

    def __init__(self, pid, name):
        self._tid = find_thread(pid, name)
        _ptrace(_SEIZE, self._tid)
        _ptrace(_INTERRUPT, self._tid)
        os.waitpid(self._tid, _WALL)

    def resume(self):
        _ptrace(_DETACH, self._tid)
