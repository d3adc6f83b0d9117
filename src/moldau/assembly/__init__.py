"""Gives a broker its ports, real or fake, and runs it: in a process of its own (`process`), or in a thread (`thread`)."""
