"""The layout of Protobuf text: blocks, lists of options, ranges of numbers."""


def block(head: str, sections: list[list[str]]) -> str:
    """A head with statements in braces; sections that say something have an empty line between them."""
    inside = "\n".join("".join(indented(statement) for statement in section) for section in sections if section)
    return f"{head} {{\n{inside}}}\n" if inside else f"{head} {{}}\n"


def indented(text: str) -> str:
    """Each line two spaces further right; empty ones stay empty."""
    return "".join(f"  {line}\n" if line else "\n" for line in text.removesuffix("\n").split("\n"))


def listed(settings: list[str]) -> str:
    """Options in brackets, on lines of their own if there are several."""
    if not settings:
        return ""
    if len(settings) == 1:
        return f" [{settings[0]}]"
    return " [\n" + indented(",\n".join(settings)) + "]"


def number_range(first: int, last: int, most: int) -> str:
    """Numbers as ``reserved`` and ``extensions`` have them; `most` is the highest that there is."""
    if first == last:
        return str(first)
    return f"{first} to {'max' if last == most else last}"
