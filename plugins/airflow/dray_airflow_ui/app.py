"""The web application below ``/dray``: the page and the API that the page calls.

Each call of the API is a GET that changes nothing in Airflow. The auth manager of Airflow decides
about each call, before anything is read.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from importlib import resources
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from dray_airflow.deadlines.published import read_plan
from dray_airflow.errors import DrayTaskFailure
from dray_airflow.hooks.dray import settings_of
from dray_airflow.hooks.fields import missing_connection
from dray_airflow.version_compat import AirflowNotFoundException
from dray_airflow_ui import core, view
from dray_airflow_ui.core import Place, SessionDep
from dray_airflow_ui.live import Watches, open_client

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sqlalchemy.orm import Session

    from dray_airflow.hooks.dray import Settings

__all__ = ["make_app"]

FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "plan.js": ("plan.js", "text/javascript; charset=utf-8"),
    "text.js": ("text.js", "text/javascript; charset=utf-8"),
    "transfers.js": ("transfers.js", "text/javascript; charset=utf-8"),
}

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " frame-ancestors 'self'; base-uri 'none'; form-action 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
NAME_MAX = 250
"""Maximum number of characters of an id in Airflow's database."""


def _settings(conn_id: str, team: str | None) -> Settings:
    try:
        connection = core.connection_of(conn_id, team)
    except AirflowNotFoundException:
        raise missing_connection(conn_id, "dray") from None
    if connection.conn_type != "dray":
        raise DrayTaskFailure(
            f"the connection {conn_id!r} has the type {connection.conn_type!r} instead of 'dray'"
        )
    return settings_of(connection)


def _place(request: Request) -> Place:
    """Return the named part of Airflow.

    The checks of Airflow read ``dag_id`` from the same request. A second ``dag_id``, or the name
    ``~`` for all DAGs, could make the checks and this function read different names.
    """
    query = request.query_params
    for name in ("dag_id", "run_id", "task_id", "map_index"):
        if len(query.getlist(name)) > 1:
            raise HTTPException(422, f"the parameter {name} is given twice; give it once")
    dag_id = query.get("dag_id", "")
    if not dag_id or dag_id == "~":
        raise HTTPException(422, "the parameter dag_id is missing; name one DAG")
    names = dag_id, query.get("run_id", ""), query.get("task_id", "")
    if any(len(name) > NAME_MAX for name in names):
        raise HTTPException(422, f"a name has more than {NAME_MAX} characters")
    index = query.get("map_index", "")
    try:
        return Place(*names, int(index) if index else None)
    except ValueError:
        raise HTTPException(422, "the parameter map_index is not a number") from None


def _same_site(request: Request) -> None:
    """Refuse calls of pages of other sites. Browsers set this header; scripts cannot change it."""
    if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
        raise HTTPException(403, "a page of another site has sent this request")


PlaceDep = Annotated[Place, Depends(_place)]
#: The checks of Airflow come after the check that the request names one DAG.
GUARDS = [Depends(_same_site), Depends(_place), *(Depends(check) for check in core.ACCESS)]


def _answer(request: Request, body: dict[str, Any]) -> Response:
    """Return JSON, or 304 if the page has the same answer already."""
    text = json.dumps(body, separators=(",", ":"))
    tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": "no-store"}
    if request.headers.get("If-None-Match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(text, media_type="application/json", headers=headers)


class Pages:
    """The calls of the API.

    :param watches: asks the endpoints.
    """

    def __init__(self, watches: Watches) -> None:
        """Store the watches."""
        self._watches = watches

    def transfers(self, session: Session, place: Place) -> dict[str, Any]:
        """Return the transfers of a run or of a task."""
        published, count = core.transfers_of(session, place)
        known = [(each, view.read_standing(each.value)) for each in published]
        ids: dict[str, list[str]] = {}
        for _, standing in known:
            if standing is not None and standing.connection:
                ids.setdefault(standing.connection, []).append(standing.id)
        team = core.team_of(place.dag_id) if ids else None
        # The database is not needed while the endpoints answer.
        session.close()
        readings = self._watches.look(ids, team)
        views = [
            view.transfer_view(
                standing,
                dag_id=place.dag_id,
                task_id=each.task_id,
                map_index=each.map_index,
                task_state=each.state,
                reading=readings.get(standing.connection),
            )
            for each, standing in known
            if standing is not None
        ]
        return {
            "transfers": views,
            "problems": [
                view.problem_view(conn_id, reading.problem)
                for conn_id, reading in readings.items()
                if reading.problem is not None
            ],
            "left_out": count - len(published),
            "unreadable": sum(standing is None for _, standing in known),
        }

    def plan(self, session: Session, place: Place) -> dict[str, Any]:
        """Return the plan of a run, or of the run that was planned last."""
        found = core.newest_plan(session, place)
        if found is None:
            return {"plan": None, "why": ""}
        run_id, value = found
        run = Place(place.dag_id, run_id)
        states = core.states_of(session, run)
        transfers = self.transfers(session, run)
        promises: dict[str, list[dict[str, Any]]] = {}
        for each in transfers["transfers"]:
            promises.setdefault(each["task_id"], []).append(each)
        try:
            published = read_plan(value)
            plan = view.plan_view(
                run_id,
                published,
                published.with_states(states.states, states.starts),
                now=datetime.now(timezone.utc),
                promises=promises,
            )
        except (ValueError, ArithmeticError) as error:
            return {"plan": None, "why": f"the plan in the XCom dray_plan is invalid: {error}"}
        return {"plan": plan, "why": "", "problems": transfers["problems"]}


def make_app() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="dray", docs_url=None, redoc_url=None, openapi_url=None)
    pages = Pages(Watches(_settings, open_client))
    folder = resources.files("dray_airflow_ui") / "static"
    contents = {path: (folder / name).read_bytes() for path, (name, _) in FILES.items()}

    @app.middleware("http")
    async def add_headers(
        request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await call_next(request)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    def add_file(path: str, media_type: str) -> None:
        @app.get(f"/{path}")
        def read() -> Response:
            headers = {"Cache-Control": "no-cache"}
            return Response(contents[path], media_type=media_type, headers=headers)

    for path, (_, media_type) in FILES.items():
        add_file(path, media_type)

    @app.get("/api/transfers", dependencies=GUARDS)
    def transfers(request: Request, place: PlaceDep, session: SessionDep) -> Response:
        if not place.run_id:
            raise HTTPException(422, "the parameter run_id is missing; name one run")
        return _answer(request, pages.transfers(session, place))

    @app.get("/api/plan", dependencies=GUARDS)
    def plan(request: Request, place: PlaceDep, session: SessionDep) -> Response:
        return _answer(request, pages.plan(session, place))

    return app
