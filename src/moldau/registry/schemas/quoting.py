"""Strings as JSON writes them, in text that can always be encoded."""

import json


def quoted(value: object) -> str:
    """A string, number, boolean or null as JSON. Half a surrogate pair, which UTF-8 cannot hold, stays an escape."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text
