"""A broker, its disk, its network and its clients in one process and one virtual time, all drawn from one seed."""
