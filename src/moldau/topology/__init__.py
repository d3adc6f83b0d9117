"""Where the clusters of each category are: what clients need of the file of tiers."""
