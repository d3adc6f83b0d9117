"""This broker as a member of its cluster: how it registers, and how it applies what the controller decides."""
