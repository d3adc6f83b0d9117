"""Which operations a client may do, as bits (KIP-430). There is no authorizer yet, so it may do all that a resource knows."""

NOT_ASKED = -2_147_483_648
"""In an answer to a client that did not ask."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << number for number in range(3, 13)
)
TOPIC_OPERATIONS = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
CLUSTER_OPERATIONS = _CREATE | _ALTER | _DESCRIBE | _CLUSTER_ACTION | _DESCRIBE_CONFIGS | _ALTER_CONFIGS | _IDEMPOTENT_WRITE
GROUP_OPERATIONS = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
