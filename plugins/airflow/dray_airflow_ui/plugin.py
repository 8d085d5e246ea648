"""The plug-in of Airflow's API server. The entry point ``airflow.plugins`` names this module.

Every process of Airflow loads this module, but only the API server uses it. So the module imports
nothing of the web application before the first request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

__all__ = ["PREFIX", "DrayUiPlugin"]

PREFIX = "/dray"
"""Path of the pages below the root of the API server."""

NAMES = {
    "dag_id": "{DAG_ID}",
    "run_id": "{RUN_ID}",
    "task_id": "{TASK_ID}",
    "map_index": "{MAP_INDEX}",
}
"""Parameters of the page, and the marks that Airflow replaces by percent-encoded names."""


class LazyApp:
    """The web application, which is made at the first request."""

    def __init__(self) -> None:
        """Make nothing yet."""
        self._app: Any = None

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
        send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    ) -> None:
        """Handle a request (ASGI)."""
        if self._app is None:
            from dray_airflow_ui.app import make_app

            self._app = make_app()
        await self._app(scope, receive, send)


def _view(destination: str, name: str, route: str, *names: str) -> dict[str, str]:
    from airflow.configuration import conf

    below = urlsplit(conf.get("api", "base_url", fallback="") or "").path.rstrip("/")
    query = "&".join(f"{each}={NAMES[each]}" for each in names)
    return {
        "name": name,
        "href": f"{below}{PREFIX}/?{query}",
        "destination": destination,
        "url_route": route,
    }


def _apps() -> list[Any]:
    return [{"app": LazyApp(), "url_prefix": PREFIX, "name": "dray"}]


def _views() -> list[Any]:
    return [
        _view("dag", "Deadline plan", "dray-plan", "dag_id"),
        _view("dag_run", "Transfers", "dray-run", "dag_id", "run_id"),
        _view("task_instance", "Transfer", "dray-task", *NAMES),
    ]


class DrayUiPlugin(AirflowPlugin):
    """The plug-in. The API server needs it; other processes of Airflow may have it."""

    name = "dray_ui"
    fastapi_apps: list[Any] = _apps()
    external_views: list[Any] = _views()
