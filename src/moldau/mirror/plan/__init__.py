"""The file of a mirror: its values, and the reader, whose errors name file and line."""
