"""What requests may take, of memory, elements and time, and what they wait for."""
