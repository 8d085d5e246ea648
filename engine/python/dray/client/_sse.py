"""Parse server-sent events (HTML living standard, section 9.2.6) from pieces of any length."""

from __future__ import annotations

from dataclasses import dataclass

from dray.client._reader import ShapeError

__all__ = ["MESSAGE_BYTES_MAX", "Message", "Messages"]

MESSAGE_BYTES_MAX = 1 << 20
"""Maximum size of a message in bytes. An event has some hundred bytes."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    :param id: the id of this message. If the message has no id, the id of the last message that had
        one.
    :param data: the text of the message's ``data`` fields.
    """

    id: str | None
    data: str


class Messages:
    """Assembles messages. The incomplete message of a broken connection is dropped."""

    __slots__ = ("_data", "_id", "_line", "_size", "_was_return")

    def __init__(self) -> None:
        """Start without bytes."""
        self._line = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._id: str | None = None
        self._was_return = False

    def feed(self, piece: bytes) -> list[Message]:
        """Add bytes. Return the messages that are now complete.

        :raises ShapeError: if a message exceeds :data:`MESSAGE_BYTES_MAX`.
        """
        found = []
        if self._was_return and piece:
            # A line ends with CR, LF or CRLF. The two bytes of CRLF may be in different pieces.
            piece = piece.removeprefix(b"\n")
            self._was_return = False
        self._was_return = piece.endswith(b"\r")
        lines = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines[:-1]:
            self._line += line
            message = self._end_line()
            if message is not None:
                found.append(message)
        self._line += lines[-1]
        self._check()
        return found

    def _end_line(self) -> Message | None:
        self._check()
        line = self._line.decode("utf-8", "replace")
        self._line.clear()
        if not line:
            data, self._data, self._size = self._data, [], 0
            return Message(self._id, "\n".join(data)) if data else None
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == "id" and "\0" not in value:
            self._id = value
        # Ignore comments (an empty name), `event` and `retry`. The field `data` contains the type
        # of the event, and the client computes its pauses itself.
        return None

    def _check(self) -> None:
        if len(self._line) + self._size > MESSAGE_BYTES_MAX:
            raise ShapeError(f"an event has more than {MESSAGE_BYTES_MAX} bytes")
