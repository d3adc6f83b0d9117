"""The definitions themselves, a module per subject."""
