"""The program ``tartan``, also as ``python -m tartan``: imports the command line, which takes a moment, and runs it."""

import signal
import sys


def main() -> int:
    """Run one command; return its exit status."""
    try:
        from tartan.cli.main import main as run
    except KeyboardInterrupt:  # later ones are the command line's own
        print("tartan: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return run()


if __name__ == "__main__":
    sys.exit(main())
