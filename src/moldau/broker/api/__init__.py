"""From a frame to the handler of its API, and from the handler's response to a frame."""
