"""Two clusters and the processes of a mirror from one to the other, all from one seed."""
