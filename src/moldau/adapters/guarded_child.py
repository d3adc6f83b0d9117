"""Runs a program in place of this process, and kills it when the process that started this one has ended: run as a script.

The starter keeps the other end of standard input open for as long as it lives, however it ends. A process forked here reads it.
"""

import os
import signal
import sys


def main(command: list[str]) -> None:
    """Run `command`; does not return."""
    own = os.getpid()
    nothing = os.open(os.devnull, os.O_RDWR)
    if os.fork() == 0:
        for number in (1, 2):
            os.dup2(nothing, number)
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        while os.read(0, 1):
            pass
        if os.getppid() == own:  # it has not ended
            os.kill(own, signal.SIGKILL)
        os._exit(0)
    os.dup2(nothing, 0)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
