"""How much clients may ask of the broker in a time."""
