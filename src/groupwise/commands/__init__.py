"""The commands behind the command line, one module each, so that `--help` imports none of their libraries.

They parse nothing of the shell's; `groupwise.cli` does.
"""
