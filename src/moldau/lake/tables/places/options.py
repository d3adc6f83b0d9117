"""Settings of object stores that are given by name, beside those of the environment."""

import os
from typing import Any

from moldau.lake.tables.places.addresses import VARIABLES


def set_option(name: str, value: str) -> None:
    """Put a setting into this process's environment, from where tables and tasks have it. ValueError for a name that stores do not know."""
    import obstore.store
    from obstore.exceptions import BaseError

    variable = name.upper() if name.upper().startswith(VARIABLES) else f"{VARIABLES}{name.upper()}"
    try:
        config: Any = {variable.lower(): value}
        obstore.store.S3Store("bucket", config=config)
    except (BaseError, ValueError, TypeError) as error:
        raise ValueError(f"{name!r} is no setting of object stores, or its value is none of it: {str(error).splitlines()[0]}") from error
    os.environ[variable] = value
