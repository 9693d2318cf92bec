"""A read in which every event is like one before it but for its text, taken in one pass. Pure.

Nearly all of a stream comes as such reads: whole HTTP chunks, in each one event, in that one string of its own. They
cost a third of what they would cost layer by layer. What is anything else is left to the parsers of the layers
(response.py, sse.py, reply.py), which would read the same from these.
"""

from __future__ import annotations

from pydantic_core import from_json

_FIELD, _EVENT_END, _CRLF = b"data: ", b"\n\n", b"\r\n"


def texts(received: bytes, before: bytes, after: bytes) -> list[str]:
    """The text of each event of a read of whole chunks, when that stands between `before` and `after` everywhere.

    Both parts end and begin at the quotes of a JSON string. Empty where anything is otherwise, and where a text is.
    """
    begin, end = _CRLF + _FIELD + before, after + _EVENT_END + _CRLF
    *chunks, rest = received.split(end)
    if rest:
        return []
    literals = []
    around_bytes = len(_FIELD + before + after + _EVENT_END)
    for chunk in chunks:
        size, found, literal = chunk.partition(begin)
        if not found or size != b"%x" % (around_bytes + len(literal)):
            return []
        literals.append(literal)
    try:  # the line ends keep a string from reaching into the next
        strings: list[str] = from_json(b'["' + b'",\n"'.join(literals) + b'"]')
    except ValueError:
        return []
    return strings if len(strings) == len(literals) and all(strings) else []
