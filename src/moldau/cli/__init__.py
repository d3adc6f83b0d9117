"""The command line: arguments, printing, exit codes. Decisions are made in the rooms below."""
