"""The command line: parse, call, print, exit code. No logic, and nothing heavy imported for --help."""
