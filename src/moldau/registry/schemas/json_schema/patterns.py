"""Whether a property has a name that a pattern describes: clients' patterns, searched in time linear in the name.

Patterns are JavaScript's. RE2 reads most of them, and none that would need backtracking: lookaround, backreferences, repetitions above
1,000. For any other it is unknown which properties it covers, so two schemas whose compatibility depends on it are not compatible;
the message names the pattern. Every pattern is still compared as text.
"""

import re
from functools import lru_cache

import re2

from moldau.registry.schemas.language import InvalidSchemaError

_MEMORY_BYTES_MAX = 1 << 20
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


def pattern_fits(pattern: str, name: str) -> bool:
    """Whether the pattern is found in the name. InvalidSchemaError for one that cannot be searched in linear time."""
    try:
        return _compiled(pattern).search(name) is not None
    except (re2.error, UnicodeEncodeError) as error:
        raise InvalidSchemaError(
            f"the property pattern {pattern!r} cannot be judged (no lookaround, no backreference, no repetition above 1000): {error}"
        ) from error


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> "re2._Regexp":
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY_BYTES_MAX
    return re2.compile(_ESCAPED.sub(_for_re2, pattern), options)


def _for_re2(found: "re.Match[str]") -> str:
    """JavaScript's \\u0041 is \\x{0041} there."""
    return f"\\x{{{found[1]}}}" if found[1] else found[0]
