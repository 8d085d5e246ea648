"""The base of hooks that parse their connection."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from airflow.sdk import BaseHook

from dray_airflow.hooks.fields import missing_connection
from dray_airflow.version_compat import AirflowNotFoundException

if TYPE_CHECKING:
    from airflow.sdk import Connection

__all__ = ["ParsedHook"]

S = TypeVar("S")


class ParsedHook(BaseHook, Generic[S]):
    """A hook whose connection is parsed to settings of the type ``S``."""

    conn_type: str

    def __init__(self, conn_id: str) -> None:
        """Store the name of the connection. The connection is not looked up yet."""
        super().__init__()
        self._conn_id = conn_id
        self._settings: S | None = None

    @abstractmethod
    def _parse(self, connection: Connection) -> S:
        """Return the settings in a connection.

        :raises DrayTaskFailure: if the connection is invalid.
        """

    @property
    def settings(self) -> S:
        """The parsed connection, which is looked up once.

        :raises DrayTaskFailure: if the connection does not exist or is invalid.
        """
        if self._settings is None:
            try:
                connection = self.get_connection(self._conn_id)
            except AirflowNotFoundException:
                raise missing_connection(self._conn_id, self.conn_type) from None
            self._settings = self._parse(connection)
        return self._settings

    async def asettings(self) -> S:
        """Await :attr:`settings`.

        Each call looks the connection up again, because its secrets may have been renewed.
        """
        try:
            connection = await self.aget_connection(self._conn_id)
        except AirflowNotFoundException:
            raise missing_connection(self._conn_id, self.conn_type) from None
        self._settings = self._parse(connection)
        return self._settings
