"""The console script ``moldau``. It imports next to nothing by itself, so that Ctrl-C while modules are loaded ends like any other one."""

import sys

from moldau.cli.exit_codes import FAILED, INTERRUPTED


def main() -> None:
    """Run the command line. Output that cannot be written, on a full disk for instance, is one line and exit code 1."""
    try:
        from moldau.cli.application import application

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


if __name__ == "__main__":
    main()
