"""The command line: one thin file a command. stdout is data, stderr is people.

Every command module has ``HELP`` (one line), ``configure(parser)`` and ``execute(args) -> exit status``, and
imports nothing heavy before ``execute``.
"""
