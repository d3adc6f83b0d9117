"""What is fetched from one broker, as a state machine: for followers, and for mirrors."""
