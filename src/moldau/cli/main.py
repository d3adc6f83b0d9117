"""The console script ``moldau``. It imports next to nothing by itself, so that Ctrl-C while modules are loaded ends like any other one."""

import os
import sys

from moldau.cli.exit_codes import FAILED, INTERRUPTED


def main() -> None:
    """Run the command line. Output that cannot be written, on a full disk for instance, is one line and exit code 1."""
    _replace_closed_streams()
    try:
        from moldau.cli.application import application
        from moldau.cli.interruptions import Interruptions

        Interruptions.process_ends = True
        application(prog_name="moldau")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    except OSError as error:
        from moldau.cli.output import abandon_stdout, is_output_error

        if not is_output_error(error):
            raise
        abandon_stdout()
        sys.stderr.write(f"Error: cannot write the output: {(error.strerror or str(error)).lower()}\n")
        sys.exit(FAILED)


def _replace_closed_streams() -> None:
    """Open /dev/null for a standard stream that the caller closed (``>&-``).

    Else the next file or socket gets its number, and what is printed, by a C library for instance, goes into that one. Child processes
    inherit it for the same reason: what Python opens is closed in them.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened == number:
                os.set_inheritable(number, True)
            else:
                os.dup2(opened, number)  # inheritable
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode))


if __name__ == "__main__":
    main()
