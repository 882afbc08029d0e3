"""The program ``tartan``, also as ``python -m tartan``: imports the command line, which takes a moment, and runs it."""

import signal
import sys


def main() -> int:
    """Run one command; return its exit status."""
    try:
        from tartan.base.signals import end_beside_threads, has_workers
        from tartan.cli.main import main as run
    except KeyboardInterrupt:  # later ones are the command line's own
        print("tartan: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    status = run()
    if has_workers():
        end_beside_threads(status)
    return status


if __name__ == "__main__":
    sys.exit(main())
