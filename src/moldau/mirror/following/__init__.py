"""What comes along with the records: committed offsets of groups, and configurations of topics. One process of a mirror does it."""
