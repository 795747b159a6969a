"""`python -m streamer.pipeline.boot PARENT MODULE ARGUMENTS…`: MODULE as a program that dies with process PARENT.

From before its imports on: those take seconds, and on a machine where nothing has been compiled yet much longer.
"""

from __future__ import annotations

import os
import runpy
import sys

from streamer.pipeline.lifeline import die_with


def command(module: str, *arguments: str) -> list[str]:
    """The command line that starts `module` as a child of this process. The child dies with the thread that starts it,
    so that must be one which lives as long as the process: the main one."""
    # -P: with -m alone the working directory, which may be any user's, comes first among the places of modules
    return [sys.executable, "-P", "-m", "streamer.pipeline.boot", str(os.getpid()), module, *arguments]


if __name__ == "__main__":
    die_with(int(sys.argv[1]))
    module, sys.argv = sys.argv[2], sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
