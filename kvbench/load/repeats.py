"""Events that are like one before them but for their text, taken in one pass. Pure.

Nearly all of a stream comes as such: whole HTTP chunks, in each one event, in that one string of its own. They cost a
third of what they would cost layer by layer. What is anything else is left to the parsers of the layers (response.py,
sse.py, reply.py), which would read the same from these.
"""

from __future__ import annotations

from pydantic_core import from_json

_FIELD, _EVENT_END, _CRLF = b"data: ", b"\n\n", b"\r\n"


def texts(received: bytes, before: bytes, after: bytes) -> tuple[list[str], int]:
    """The texts of the events that `received` begins with, as far as they stand in whole chunks between `before` and
    `after`, and how many bytes those chunks are. Both parts end and begin at the quotes of a JSON string.

    No texts and 0 bytes where one of them is none, or empty.
    """
    begin, end = _CRLF + _FIELD + before, after + _EVENT_END + _CRLF
    around_bytes = len(_FIELD + before + after + _EVENT_END)
    heads: dict[int, bytes] = {}  # what a chunk of that length begins with
    literals, taken_bytes = [], 0
    for chunk in received.split(end)[:-1]:
        length = len(chunk)
        if (head := heads.get(length)) is None:
            size, found, literal = chunk.partition(begin)
            if not found or size != b"%x" % (around_bytes + len(literal)):
                break
            head = heads[length] = size + begin
        elif not chunk.startswith(head):
            break
        literals.append(chunk[len(head) :])
        taken_bytes += length + len(end)
    try:  # the line ends keep a string from reaching into the next
        strings: list[str] = from_json(b'["' + b'",\n"'.join(literals) + b'"]')
    except ValueError:
        return [], 0
    texts_alone = len(strings) == len(literals) and all(strings) and {*map(type, strings)} == {str}
    return (strings, taken_bytes) if texts_alone else ([], 0)
