"""Simulated clients: plain coroutines over the port of the network. They record what they did and saw for the checker of histories."""
