"""Tests that the awaiting client is generated from the blocking one."""

from __future__ import annotations

import pytest

from tools import async_client

METHODS = '''"""The blocking client."""

from collections.abc import Generator


class Client(Blocking):
    """Calls."""

    def one(self) -> int:
        """Return one."""
        return self._run(1)

    def each(self) -> Generator[int, None, None]:
        """List each."""
        return self._pages(1)
'''


def test_the_awaiting_client_is_up_to_date() -> None:
    blocking = async_client.BLOCKING.read_text(encoding="utf-8")
    awaiting = async_client.AWAITING.read_text(encoding="utf-8")
    is_the_same = async_client.written(blocking) == awaiting
    assert is_the_same, "run `python tools/async_client.py`"


def test_methods_become_coroutines_and_iterators_asynchronous() -> None:
    text = async_client.written(METHODS)
    assert "async def one(self) -> int:" in text
    assert "return await self._run(1)" in text
    assert "    def each(self) -> AsyncGenerator[int, None]:" in text
    assert '"""Iterate over :meth:`Client.each`."""' in text


def test_a_module_without_a_class_is_refused() -> None:
    with pytest.raises(ValueError, match="one class"):
        async_client.written('"""Nothing."""\n')
