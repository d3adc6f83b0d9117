"""Hand-written decoders and encoders for Produce and Fetch, which agree with the compiled codec on every input."""
