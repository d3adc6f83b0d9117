"""A line in the log for settings that this version accepts without effect, so that an operator does not rely on them."""

import logging
from collections.abc import Mapping

from moldau.model.config import ConfigDefinition, without_effect

_LOG = logging.getLogger(__name__)


def warn_without_effect(of: str, values: Mapping[str, str], definitions: Mapping[str, ConfigDefinition]) -> None:
    """Name those of `values`, which are allowed, that have no effect; `of` says whose they are, such as ``topic=events``."""
    names = without_effect(values, definitions)
    if names:
        _LOG.warning("settings without effect in this version: %s names=%s", of, ",".join(names))
