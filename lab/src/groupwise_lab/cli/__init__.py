"""The command line of the laboratory: one file a command."""
