"""Answers of a session keep their order, also after a call that raised."""

import pytest

from moldau.ports.coordination import Stream


def test_an_answer_does_not_overtake_what_an_error_has_left() -> None:
    stream, called = Stream(), list[str]()

    def fails(_: object) -> None:
        stream.put(lambda: called.append("first"))
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        stream.answer(fails, None)
    stream.answer(lambda _: called.append("second"), None)
    assert called == ["first", "second"]
