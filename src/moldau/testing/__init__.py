"""For tests, ours and those of our users: fakes of the ports, a broker to test against."""
