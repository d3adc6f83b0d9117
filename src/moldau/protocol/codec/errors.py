"""What is wrong with a value that cannot be written."""


class UnencodableError(ValueError):
    """A message holds something that the chosen version cannot carry, or that the wire type cannot: the caller's bug."""
