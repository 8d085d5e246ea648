"""Notify users if retries are exhausted, or if a deadline is missed or will be missed.

Used as the ``on_failure_callback`` of a task, or as the callback of a deadline alert. The message
includes the reason. The message goes to the log. With ``webhook_conn_id`` it also goes to a chat's
webhook, and with ``to`` by mail.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseNotifier

from dray_airflow.errors import DrayTaskRetry, bad_input, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

__all__ = ["DrayNotifier"]

WEBHOOK_SECONDS = 20.0
_HOST = re.compile(r"(https?://)?[^/?#@\s]+/?")
"""A host in the form that Airflow accepts, without any part that could be secret."""


class DrayNotifier(BaseNotifier):
    """Notifies users over several channels. If a channel fails, the other channels are still used.

    :param dray_conn_ids: connections of the endpoints that drive the transfers.
    :param webhook_conn_id: connection of a webhook that accepts ``{"text": ...}`` (for example
        Slack, Mattermost or Zulip), with host, schema and port. If the password begins with ``/``,
        it is the secret path of the URL. Otherwise it is sent as a bearer token. A host with a path
        is refused, because the path may be secret, and Airflow keeps only passwords out of logs.
    :param to: mail addresses, used with Airflow's ``smtp`` provider.
    :param smtp_conn_id: connection of the ``smtp`` provider.
    :param is_early: for an alert before the deadline: notify only if a transfer has failed, or is
        expected to miss its own deadline.
    :param context: context that Airflow passes if it awaits the notifier.
    """

    template_fields: Sequence[str] = ("dray_conn_ids", "webhook_conn_id", "to", "smtp_conn_id")
    SUBJECT_CHARACTERS_MAX: ClassVar[int] = 120

    def __init__(
        self,
        dray_conn_ids: Sequence[str] = ("dray_default",),
        webhook_conn_id: str | None = None,
        to: Sequence[str] | str | None = None,
        smtp_conn_id: str | None = None,
        is_early: bool = False,
        context: Context | None = None,
    ) -> None:
        """Store the recipients. No connection is looked up yet."""
        super().__init__(context=context)
        self.dray_conn_ids = list(dray_conn_ids)
        self.webhook_conn_id = webhook_conn_id
        self.to = to
        self.smtp_conn_id = smtp_conn_id
        self.is_early = is_early

    # --- a task has failed ------------------------------------------------------------------------

    def notify(self, context: Context) -> None:
        """Notify users that a task has failed or will be retried. Runs in the process of the task.

        :raises DrayTaskRetry: if a channel failed. All channels are tried first. The message does
            not contain the URL of the webhook.
        """
        text = self.story_of_task(context)
        self.log.error("%s", text)
        failed = []
        if self.webhook_conn_id:
            try:
                self._post(self.webhook_conn_id, text)
            except Exception as error:
                failed.append(f"webhook {self.webhook_conn_id}: {_cause(error)}")
        if self.to:
            try:
                self._mail(text).notify(context)
            except Exception as error:
                failed.append(f"mail: {_cause(error)}")
        _check(failed)

    def _post(self, conn_id: str, text: str) -> None:
        import httpx

        url, headers = self._webhook(self._connection(conn_id))
        answer = httpx.post(url, json={"text": text}, headers=headers, timeout=WEBHOOK_SECONDS)
        answer.raise_for_status()

    async def _apost(self, conn_id: str, text: str) -> None:
        import httpx

        url, headers = self._webhook(await self._aconnection(conn_id))
        async with httpx.AsyncClient(timeout=WEBHOOK_SECONDS) as client:
            answer = await client.post(url, json={"text": text}, headers=headers)
        answer.raise_for_status()

    def story_of_task(self, context: Context) -> str:
        """Return one line with the failed task, the cause, and the states of its transfers."""
        ti: Any = context["ti"]
        tries = f"try {ti.try_number} of {(getattr(ti, 'max_tries', 0) or 0) + 1}"
        index = ti.map_index if ti.map_index is not None else -1
        name = ti.task_id if index < 0 else f"{ti.task_id}[{index}]"
        cause = one_line(str(context.get("exception") or "no reason was given"))
        text = f"task {name} of run {ti.run_id} of {ti.dag_id} failed ({tries}): {cause}"
        return "; ".join([text, *self._transfers(ti, index)])

    def _transfers(self, ti: Any, map_index: int) -> list[str]:  # noqa: ANN401 - Airflow's own
        """Describe the state of the task's transfers at the endpoints that answer."""
        from dray.errors import DrayError
        from dray_airflow.deadlines.callback import RESERVATION_LABEL
        from dray_airflow.errors import DrayTaskFailure
        from dray_airflow.hooks.dray import DrayHook
        from dray_airflow.links.transfer import show_command
        from dray_airflow.values import label_text

        labels = {
            "dag_id": label_text(ti.dag_id),
            "run_id": label_text(ti.run_id),
            "task_id": label_text(ti.task_id),
            "map_index": str(map_index),
        }
        said = []
        for conn_id in self.dray_conn_ids:
            try:
                hook = DrayHook(conn_id)
                with hook.get_conn() as client:
                    for each in client.transfers(labels=labels, limit=10):
                        if RESERVATION_LABEL in (each.request.get("labels") or {}):
                            continue
                        page = hook.settings.link_to(each.id)
                        where = page or show_command(hook.settings, each.id)
                        safe, of = each.bytes.durable / 1e9, each.bytes.listed / 1e9
                        kept = (
                            f"{safe:.3g} of {of:.3g} GB are safe and will not be sent again:"
                            " clear the task to resume"
                            if each.bytes.durable
                            else "no data was moved yet"
                        )
                        said.append(f"transfer {each.id} is {each.state}, {kept} ({where})")
                        break
            except (DrayError, DrayTaskFailure) as error:
                said.append(f"cannot ask the endpoint of connection {conn_id}: {error}")
        return said

    # --- a deadline -------------------------------------------------------------------------------

    async def async_notify(self, context: Context) -> None:
        """Notify users about the transfer that delays the run. Runs in the triggerer.

        :raises DrayTaskRetry: as for :meth:`notify`.
        """
        from dray_airflow.deadlines.callback import name_the_reason

        given: Any = context
        text = await name_the_reason(given, self.dray_conn_ids, is_early=self.is_early)
        if text is None:
            self.log.info("no notification: no transfer of the run is predicted to be late")
            return
        self.log.error("%s", text)
        failed = []
        if self.webhook_conn_id:
            try:
                await self._apost(self.webhook_conn_id, text)
            except Exception as error:
                failed.append(f"webhook {self.webhook_conn_id}: {_cause(error)}")
        if self.to:
            try:
                await self._mail(text).async_notify(context)
            except Exception as error:
                failed.append(f"mail: {_cause(error)}")
        _check(failed)

    # --- channels ---------------------------------------------------------------------------------

    @staticmethod
    def _connection(conn_id: str) -> Any:  # noqa: ANN401 - Airflow's own
        from airflow.sdk import BaseHook

        return BaseHook.get_connection(conn_id)

    @staticmethod
    async def _aconnection(conn_id: str) -> Any:  # noqa: ANN401 - Airflow's own
        from airflow.sdk import BaseHook

        return await BaseHook.aget_connection(conn_id)

    @staticmethod
    def _webhook(connection: Any) -> tuple[str, dict[str, str]]:  # noqa: ANN401 - Airflow's own
        host = str(connection.host or "")
        if not _HOST.fullmatch(host):
            raise bad_input(
                "use the webhook's connection",
                "the field host of the connection is not a host name",
                "fill the fields schema, host and port, and write the rest of the URL into "
                "the field password",
            )
        url = host.rstrip("/") if "://" in host else f"{connection.schema or 'https'}://{host}"
        if connection.port:
            url = f"{url}:{connection.port}"
        secret = connection.password or ""
        if secret.startswith("/"):
            return url.rstrip("/") + secret, {}
        return url, {"Authorization": f"Bearer {secret}"} if secret else {}

    def _mail(self, text: str) -> Any:  # noqa: ANN401 - of an optional provider
        import html

        from airflow.providers.smtp.notifications.smtp import SmtpNotifier

        return SmtpNotifier(
            to=self.to or (),
            subject=text[: self.SUBJECT_CHARACTERS_MAX],
            html_content=html.escape(text),
            smtp_conn_id=self.smtp_conn_id,
        )


def _cause(error: Exception) -> str:
    """Return the cause of a failed channel, without httpx's messages, which contain the URL."""
    import httpx

    if isinstance(error, httpx.HTTPStatusError):
        return f"the server answered {error.response.status_code}"
    if isinstance(error, (httpx.HTTPError, httpx.InvalidURL)):
        return f"the server could not be reached ({type(error).__name__})"
    return one_line(str(error)) or type(error).__name__


def _check(failed: Sequence[str]) -> None:
    if failed:
        raise DrayTaskRetry(
            f"the notification failed: {'; '.join(failed)}; check these connections"
        )
