"""
The pages that only look.
"""

from collections.abc import Iterator
from datetime import timedelta

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from jobstore.doctor import Thresholds
from jobstore.errors import InvalidInput
from jobstore.ids import known_id
from jobstore.lifecycle import REOPENABLE, TERMINAL, JobClass
from jobstore.web import plot, queries
from jobstore.web.reading import FILTERS, LOOK, Reader
from jobstore.web.render import Renderer
from jobstore.web.values import Line, Overview

__all__ = ["Pages"]

WINDOWS = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
_THRESHOLDS = Thresholds()


class Pages:
    """
    The pages, on one store.
    """

    def __init__(self, reader: Reader, renderer: Renderer) -> None:
        self._reader = reader
        self._renderer = renderer

    def routes(self) -> list[Route]:
        return [
            Route("/", self.overview),
            Route("/jobs", self.jobs),
            Route("/jobs/{job_id}", self.job),
            Route("/failures", self.failures),
        ]

    def overview(self, request: Request) -> Response:
        seen = self._reader.overview()
        return self._renderer.page(
            request,
            "overview.html",
            here="overview",
            seen=seen,
            flow=plot.flow(seen.minutes),
            tiles=list(_tiles(seen)),
            grade=_graded,
            spark=plot.spark,
            most=queries,
        )

    def jobs(self, request: Request) -> Response:
        asked = {
            name: value.strip()
            for name, value in request.query_params.items()
            if value.strip()
        }
        if "id" in asked:
            base = request.scope.get("root_path", "")
            return RedirectResponse(f"{base}/jobs/{known_id(asked['id'])}", 303)
        word = asked.get("status", "")
        filters = {name: asked[name] for name in FILTERS if name in asked}
        found = self._reader.search(word, filters, after=asked.get("after"))
        return self._renderer.page(
            request,
            "jobs.html",
            here="jobs",
            found=found,
            at=self._reader.now(),
            word=word,
            filters=filters,
            order=queries.ORDERS[word].explained,
            look=LOOK,
            words=[one for one in queries.ORDERS if one],
            classes=list(JobClass),
            is_first="after" not in asked,
        )

    def job(self, request: Request) -> Response:
        after = request.query_params.get("children_after") or None
        seen = self._reader.see(request.path_params["job_id"], after_child=after)
        at = max(seen.job.updated_at, self._reader.now())
        return self._renderer.page(
            request,
            "job.html",
            here="jobs",
            seen=seen,
            job=seen.job,
            at=at,
            events=plot.events(seen.job, seen.attempts),
            strip=plot.strip(seen.job, seen.attempts, at),
            may_requeue=seen.job.status in REOPENABLE,
            may_cancel=seen.job.status not in TERMINAL,
            is_first="children_after" not in request.query_params,
        )

    def failures(self, request: Request) -> Response:
        word = request.query_params.get("window") or "24h"
        if word not in WINDOWS:
            known = ", ".join(WINDOWS)
            raise InvalidInput("window", word, f"must be one of {known}")
        groups, is_bounded = self._reader.failures(WINDOWS[word])
        return self._renderer.page(
            request,
            "failures.html",
            here="failures",
            groups=groups,
            is_bounded=is_bounded,
            window=word,
            windows=list(WINDOWS),
            at=self._reader.now(),
            total=sum(group.jobs for group in groups),
            most=max((group.jobs for group in groups), default=1),
            bound=queries.MOST_FAILURES,
        )


def _tiles(seen: Overview) -> Iterator[tuple[str, str, int | None, str]]:
    """
    Give what the head of the overview says: label, filter, jobs, grade.
    """
    yield "ready", "queued", sum(line.ready for line in seen.lines), ""
    yield "running", "processing", sum(line.running for line in seen.lines), ""
    expired = sum(line.expired for line in seen.lines)
    yield "expired leases", "processing", expired, "warning" if expired else ""
    yield "scheduled", "scheduled", sum(line.scheduled for line in seen.lines), ""
    yield "waiting families", "waiting", sum(line.waiting for line in seen.lines), ""
    failed = sum(minute.counts.get("failed", 0) for minute in seen.minutes)
    yield "failed in this hour", "failed", failed, "warning" if failed else ""


def _graded(line: Line, seen: Overview) -> str:
    """
    Grade the longest wait of a line by the thresholds of the doctor.
    """
    if line.ready_since is None:
        return ""
    wait = seen.at - line.ready_since
    limit = _THRESHOLDS.wait[line.job_class]
    if wait < limit:
        return ""
    return "critical" if wait >= limit * _THRESHOLDS.critical_factor else "warning"
