"""What a request is answered with when it is not answered."""

from __future__ import annotations

from http import HTTPStatus


class Refused(Exception):
    """A request that gets no answer.

    Attributes:
        reason: one line, for whoever asked.
        status: ``OK`` for what was understood and cannot be had, which the front-end shows only then.
    """

    def __init__(self, reason: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
