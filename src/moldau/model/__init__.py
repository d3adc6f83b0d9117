"""The field's words as types: identities, offsets, error codes, configuration definitions. Standard library only."""
