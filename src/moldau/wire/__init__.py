"""A client of the Kafka protocol over the ports, with coroutines: for mirrors, and for the clients of the simulator."""
