"""The controller of a cluster: the one broker that elects leaders and changes topics and configurations."""
