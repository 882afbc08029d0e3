"""The command line: one thin file a command. stdout is data, stderr is people.

Every command module has ``configure(parser)`` and ``execute(args) -> exit status``, and imports nothing
heavy before ``execute``. The line that says what a command does is in ``main``, so that ``tartan --help`` imports none.
"""
