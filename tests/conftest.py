"""What holds for all tests: properties are judged by their outcome, not by how long a busy machine took over an example."""

from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("any machine")
