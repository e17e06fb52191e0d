"""
Changing jobs: requeue and cancel, by the functions of the schema and into its audit.

First shown, then done: the form says what would change, asks for a reason, and carries
a seal and the state that was seen. Nothing of this exists unless it was asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from jobstore import checks
from jobstore.errors import JobNotFound, StoreFault
from jobstore.ids import known_id
from jobstore.postgres import PostgresStore
from jobstore.postgres.session import Call, Session
from jobstore.web import queries as sql
from jobstore.web.forms import Forms
from jobstore.web.reading import LIMITS, Reader, named
from jobstore.web.render import Renderer

__all__ = ["ACTIONS", "Change", "Foreseer", "Operating", "Operator"]

ACTIONS: Mapping[str, str] = {"requeue": sql.REQUEUE, "cancel": sql.CANCEL}
SHOWN = 50
LONGEST_REASON = 1_000
# What a dry run is given; it writes no audit.
_ASKING = "shown by jobstore web, not done"
_WRONG_STATE = "55000"


@dataclass(frozen=True, slots=True)
class Change:
    """
    What becomes of jobs: the first of them, and how many there are.
    """

    rows: list[tuple[str, str, str]]
    """Id, was, becomes."""
    total: int

    def state_of(self, job_id: str) -> str:
        """
        Return the state of the job itself, "" if nothing happens to it.
        """
        return next((was for one, was, _ in self.rows if one == job_id), "")


class Operator(PostgresStore):
    """
    A store that also runs the operator's functions.
    """

    def __init__(self, dsn: str, *, schema: str, through_pooler: bool = False) -> None:
        super().__init__(
            named(dsn),
            schema=schema,
            limits=LIMITS,
            pool_size=2,
            through_pooler=through_pooler,
        )

    def change(self, action: str, job_id: str, reason: str) -> Change:
        """
        Do *action*, one of `ACTIONS`, and write *reason* into the audit.

        Raises:
            StoreFault: The state of the job forbids it, or the role may not.
            OutcomeUnknown: Look at the job again; its audit tells.
        """
        run = partial(_change, action=action, job_id=known_id(job_id), reason=reason)
        return self._run(Call(run, transaction=True, repeatable=False))


class Foreseer(Reader):
    """
    Shows what would change, in sessions that can't write.
    """

    def foresee(self, action: str, job_id: str) -> Change:
        run = partial(_foresee, action=action, job_id=known_id(job_id))
        return self._read(run)


class Operating:
    """
    The forms.
    """

    def __init__(
        self, foreseer: Foreseer, operator: Operator, forms: Forms, renderer: Renderer
    ) -> None:
        self._foreseer = foreseer
        self._operator = operator
        self._forms = forms
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            route
            for action in ACTIONS
            for route in (
                Route(f"/jobs/{{job_id}}/{action}", self.ask, methods=["GET"]),
                Route(f"/jobs/{{job_id}}/{action}", self.answer, methods=["POST"]),
            )
        ]

    def ask(self, request: Request) -> Response:
        return self._form(request, status=200)

    async def answer(self, request: Request) -> Response:
        action, job_id = _asked(request)
        form = await self._forms.read(request, f"{action} {job_id}")
        return await run_in_threadpool(self._do, request, form)

    def _do(self, request: Request, form: Mapping[str, str]) -> Response:
        action, job_id = _asked(request)
        reason = checks.recordable_reason(form.get("reason", "")).strip()
        if not reason or len(reason) > LONGEST_REASON:
            said = f"Say why, in up to {LONGEST_REASON:,} characters."
            return self._form(request, status=400, said=said, reason=reason)
        try:
            foreseen = self._foreseer.foresee(action, job_id)
            if foreseen.state_of(job_id) != form.get("was"):
                said = "It has changed since you looked. Look again, and decide."
                return self._form(request, status=409, said=said, reason=reason)
            self._operator.change(action, job_id, reason)
        except StoreFault as fault:
            if fault.sqlstate != _WRONG_STATE:
                raise
            return self._form(request, status=409, reason=reason)
        base = request.scope.get("root_path", "")
        return RedirectResponse(f"{base}/jobs/{job_id}", 303)

    def _form(
        self, request: Request, *, status: int, said: str = "", reason: str = ""
    ) -> Response:
        action, job_id = _asked(request)
        foreseen = Change([], 0)
        try:
            foreseen = self._foreseer.foresee(action, job_id)
        except StoreFault as fault:
            if fault.sqlstate != _WRONG_STATE:
                raise
            status, said = 409, f"The state of the job forbids it: {fault}"
        visit = self._forms.visit(request)
        response = self._renderer.page(
            request,
            "change.html",
            status=status,
            here="jobs",
            action=action,
            job_id=job_id,
            foreseen=foreseen,
            said=said,
            reason=reason,
            longest=LONGEST_REASON,
            seal=self._forms.seal(visit, f"{action} {job_id}"),
        )
        path = request.scope.get("root_path", "") or "/"
        self._forms.remember(response, visit, path=path)
        return response


def _asked(request: Request) -> tuple[str, str]:
    action = request.scope["path"].rpartition("/")[2]
    return action, known_id(request.path_params["job_id"])


def _foresee(session: Session, action: str, job_id: str) -> Change:
    return _run(session, action, job_id, _ASKING, dry_run=True)


def _change(session: Session, action: str, job_id: str, reason: str) -> Change:
    done = _run(session, action, job_id, reason, dry_run=False)
    queued = [one for one, _, becomes in done.rows if becomes == "queued"]
    for (queue,) in session.rows(sql.QUEUES_OF, job_ids=queued):
        session.queued(queue)
    return done


def _run(
    session: Session, action: str, job_id: str, reason: str, *, dry_run: bool
) -> Change:
    if session.row(sql.PLACE, job_id=job_id) is None:
        raise JobNotFound(job_id)
    rows = session.rows(
        ACTIONS[action], job_id=job_id, reason=reason, dry_run=dry_run, most=SHOWN
    )
    return Change([(row[0], row[1], row[2]) for row in rows], rows[0][3] if rows else 0)
