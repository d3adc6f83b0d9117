"""What holds for all tests: properties are judged by their outcome, not by how long a busy machine took over an example.

And Ctrl-C means what it means at a terminal: a shell starts what it runs in the background with that signal ignored, and every process
that a test starts would inherit it.
"""

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("any machine")

signal.signal(signal.SIGINT, signal.default_int_handler)
