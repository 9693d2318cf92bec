"""Server-sent events, read as the WHATWG standard states them (html.spec.whatwg.org, 9.2.6). Pure.

Bytes are split at line ends before anything is decoded, so a character that is cut between two reads stays whole.
Only `data` matters to a completion; `event`, `id`, `retry` and comments are read over.
"""

from __future__ import annotations

import re

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventParser:
    """Takes the body of a stream in pieces of any size and gives the data of each event that is complete."""

    __slots__ = ("_after_cr", "_begun", "_data", "_tail")

    def __init__(self) -> None:
        self._begun = False  # past the place where a byte order mark may stand
        self._after_cr = False  # the last line ended in CR: an LF that comes next belongs to it
        self._tail = b""  # of a line that has not ended
        self._data: list[bytes] = []  # data lines of an event that has not ended

    @property
    def between_events(self) -> bool:
        """Whether nothing of an event is kept, nor of the line end before it."""
        return self._begun and not (self._tail or self._data or self._after_cr)

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that ends in `piece`, its lines joined by LF. An event without data is nothing."""
        if self.between_events and (events := _plain_events(piece)):
            return events
        if self._after_cr and piece:
            piece = piece.removeprefix(b"\n")
            self._after_cr = False
        if self._begun and b"\n" not in piece and b"\r" not in piece:
            self._tail += piece  # a long line is looked through once
            return []
        text = self._tail + piece
        if not self._begun:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._tail = text
                return []
            text = text.removeprefix(_BOM)
            self._begun = True
        *lines, self._tail = _LINE_END.split(text)
        self._after_cr = text.endswith(b"\r")
        return [data for line in lines if (data := self._take(line)) is not None]

    def _take(self, line: bytes) -> bytes | None:
        """Take one line; gives an event's data when the line is the blank one that ends it."""
        if line:
            field, _, value = line.partition(b":")
            if field == b"data":
                self._data.append(value.removeprefix(b" "))
            return None
        if not self._data:
            return None
        data = b"\n".join(self._data)
        self._data.clear()
        return data


def _plain_events(piece: bytes) -> list[bytes]:
    """The data of a piece that is `data: …\\n\\n` once or more, which is how nearly every token comes; else nothing."""
    if piece[:6] != b"data: " or piece[-2:] != b"\n\n" or b"\r" in piece:
        return []
    events = piece[6:-2].split(b"\n\ndata: ")
    return events if piece.count(b"\n") == 2 * len(events) else []
