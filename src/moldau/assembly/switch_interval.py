"""How long a thread that computes may keep the interpreter's lock from the thread that answers."""

SWITCH_INTERVAL_S = 0.0005
"""The thread that answers asks for the lock after each system call, a few times in a request. With Python's 5 ms every round trip to a
broker took 5.4 ms while searches by time ran, with this 1.4; look-ups in a registry took 50 ms while its 100,000 subjects were listed, with
this 16.
"""
