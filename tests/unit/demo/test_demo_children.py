"""Processes of the demonstration speak to its own broker and registry, whatever the user's variables name."""

from moldau.demo.children import own_environment


def test_no_variable_of_moldau_reaches_a_child() -> None:
    """Claim: MOLDAU_REGISTRY made the auditor ask another registry, which did not know the events: 3,000 were counted as a loss."""
    given = {"PATH": "/bin", "MOLDAU_REGISTRY": "http://elsewhere:8081", "MOLDAU_NUM_PARTITIONS": "7"}
    assert own_environment(given) == {"PATH": "/bin"}
