"""
A state machine that has two stores live through the same story, and compares them.

Hypothesis invents the story, and shortens one that makes the stores differ.
Instants are compared to the hour; ids go by the order of creation.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobstore.errors import JobNotFound, JobstoreError
from jobstore.ids import new_id
from jobstore.lifecycle import TERMINAL, JobClass, JobStatus
from jobstore.model import (
    ChildFailure,
    Job,
    Lease,
    NewJob,
    Outcome,
)
from jobstore.testing.draws import (
    CHANGES,
    CLASSES,
    DELAYS,
    FILTERS,
    HOUR,
    OUTCOMES,
    QUEUES,
)
from jobstore.testing.harness import Harness, MemoryHarness
from jobstore.testing.sides import Side

__all__ = ["AgreementMachine"]


class AgreementMachine(RuleBasedStateMachine):
    """
    Runs every verb on a `MemoryStore` and on another store.

    Subclass it and override `other`, which gives a harness around an empty store.
    """

    def memory(self) -> Harness:
        """
        Make the harness of the store to compare with.
        """
        return MemoryHarness()

    def other(self) -> Harness:
        """
        Make the harness of the store under test.
        """
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.sides = (Side(self.memory()), Side(self.other()))
        self.leases: list[tuple[int, int]] = []
        self._seen: dict[str, Job] = {}
        self._is_counted = True

    def teardown(self) -> None:
        for side in getattr(self, "sides", ()):
            side.harness.close()

    def both(self, call: Callable[[Side], object]) -> Any:
        """
        Make *call* on both sides, compare what came of it, and return the first.
        """
        answers = []
        for side in self.sides:
            try:
                answers.append(call(side))
            except JobstoreError as error:
                answers.append(error)
        one, other = (
            side.plain(answer) for side, answer in zip(self.sides, answers, strict=True)
        )
        assert one == other
        return answers[0]

    # -- submit ----------------------------------------------------------------

    @rule(
        queue=QUEUES,
        job_class=CLASSES,
        key=st.sampled_from([None, None, "k", "l"]),
        payload=st.sampled_from([b"", b"p"]),
        max_attempts=st.integers(1, 3),
        delay=st.sampled_from([None, HOUR]),
        has_parent=st.sampled_from([False, False, True]),
        data=st.data(),
        strict=st.booleans(),
        count=st.integers(1, 3),
    )
    def create(
        self,
        *,
        queue: str,
        job_class: JobClass,
        key: str | None,
        payload: bytes,
        max_attempts: int,
        delay: timedelta | None,
        has_parent: bool,
        data: st.DataObject,
        strict: bool,
        count: int,
    ) -> None:
        parent = self._number(data) if has_parent else None
        new = NewJob(
            kind="work",
            queue=queue,
            job_class=job_class,
            idem_key=key,
            payload=payload,
            max_attempts=max_attempts,
            available_at=None if delay is None else datetime.now(UTC) + delay,
        )

        def call(side: Side) -> object:
            parent_id = None if parent is None else side.id_of(parent)
            one = replace(new, parent_id=parent_id)
            if count == 1:
                created = [side.store.create(one, strict=strict)]
            else:
                created = side.store.create_many([one] * count, strict=strict)
            side.note(created)
            return created

        self.both(call)

    @rule(data=st.data(), payload=st.sampled_from([b"", b"p"]))
    def create_by_id(self, *, data: st.DataObject, payload: bytes) -> None:
        job = self._number(data)

        def call(side: Side) -> object:
            chosen = side.id_of(job) if job < len(side.ids) else new_id()
            new = NewJob(kind="work", queue="one", payload=payload)
            created = side.store.create(new, job_id=chosen)
            side.note([created])
            return created

        self.both(call)

    # -- work ------------------------------------------------------------------

    @rule(
        limit=st.integers(1, 3),
        queue=QUEUES,
        job_class=st.sampled_from([None, None, *JobClass]),
        lease=st.sampled_from([None, 2 * HOUR]),
    )
    def claim(
        self,
        *,
        limit: int,
        queue: str,
        job_class: JobClass | None,
        lease: timedelta | None,
    ) -> None:
        # A store may look for due jobs only every now and then, when it has others.
        self.both(lambda side: side.store.promote_due(limit=1000))
        claims = self.both(
            lambda side: side.store.claim(
                limit, queue=queue, job_class=job_class, worker="w", lease=lease
            )
        )
        first = self.sides[0]
        self.leases += [(first.ids.index(one.job.id), one.job.fence) for one in claims]

    @rule(data=st.data())
    def heartbeat(self, *, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(self._lease(), max_size=4))
        self.both(
            lambda side: side.store.heartbeat(
                [Lease(side.id_of(job), fence) for job, fence in chosen]
            )
        )

    @rule(data=st.data(), outcome=OUTCOMES)
    def finish(self, *, data: st.DataObject, outcome: Outcome) -> None:
        job, fence = data.draw(self._lease())
        self.both(
            lambda side: side.store.set_result(Lease(side.id_of(job), fence), outcome)
        )

    @rule(data=st.data())
    def finish_many(self, *, data: st.DataObject) -> None:
        chosen = data.draw(
            st.lists(
                st.tuples(self._lease(), OUTCOMES),
                max_size=4,
                unique_by=lambda pair: pair[0],
            )
        )
        self.both(
            lambda side: side.store.set_results(
                [
                    (Lease(side.id_of(job), fence), outcome)
                    for (job, fence), outcome in chosen
                ]
            )
        )

    @rule(
        data=st.data(),
        count=st.integers(0, 2),
        key=st.sampled_from([None, "k", "m"]),
        policy=st.sampled_from(ChildFailure),
    )
    def fan_out(
        self, *, data: st.DataObject, count: int, key: str | None, policy: ChildFailure
    ) -> None:
        job, fence = data.draw(self._lease())
        child = NewJob(kind="page", queue="two", idem_key=key, max_attempts=2)

        def call(side: Side) -> object:
            lease = Lease(side.id_of(job), fence)
            created = side.store.fan_out(
                lease, [child] * count, on_child_failure=policy
            )
            side.note(created)
            return created

        self.both(call)

    def _lease(self) -> st.SearchStrategy[tuple[int, int]]:
        """
        Draw a lease that was given of late, whether it stands or not.
        """
        if not self.leases:
            return st.tuples(st.integers(0, 3), st.integers(1, 2))
        return st.sampled_from(self.leases[-6:])

    def _number(self, data: st.DataObject) -> int:
        """
        Draw the number of a job, or one that no job has.
        """
        return data.draw(st.integers(0, len(self.sides[0].ids)))

    # -- time and upkeep -------------------------------------------------------

    @rule(data=st.data())
    def age(self, *, data: st.DataObject) -> None:
        number = self._number(data)
        if self.both(lambda side: self._if_known(side, number)) is not None:
            for side in self.sides:
                side.harness.age(side.id_of(number), HOUR + timedelta(minutes=1))

    @rule(timeout=st.sampled_from([timedelta(0), timedelta(minutes=30)]))
    def reclaim(self, *, timeout: timedelta) -> None:
        self.both(lambda side: side.store.reclaim_stale(timeout))

    @rule()
    def repair(self) -> None:
        self.both(lambda side: side.store.repair_families())

    @rule(
        statuses=st.sets(st.sampled_from(sorted(TERMINAL)), min_size=2),
        keep_keys_for=DELAYS,
    )
    def prune(self, *, statuses: set[JobStatus], keep_keys_for: timedelta) -> None:
        self.both(
            lambda side: side.store.prune(
                timedelta(minutes=30), status=statuses, keep_keys_for=keep_keys_for
            )
        )

    @rule(data=st.data())
    def delete(self, *, data: st.DataObject) -> None:
        # By hand, and only where no key would notice and no child be left behind.
        number = self._number(data)
        job = self.both(lambda side: self._if_known(side, number))
        if isinstance(job, Job) and job.idem_key is None and not job.children_total:
            # Its parent waits for a child that is gone, until a repair.
            self._is_counted &= job.parent_id is None or job.finished_at is not None
            for side in self.sides:
                side.harness.delete(side.id_of(number))

    @staticmethod
    def _if_known(side: Side, number: int) -> Job | None:
        try:
            return side.store.get(side.id_of(number))
        except JobNotFound:
            return None

    # -- operate ---------------------------------------------------------------

    @rule(data=st.data())
    def cancel(self, *, data: st.DataObject) -> None:
        job = self._number(data)
        self.both(lambda side: side.store.cancel(side.id_of(job), reason="r"))

    @rule(data=st.data())
    def requeue(self, *, data: st.DataObject) -> None:
        job = self._number(data)
        self.both(lambda side: side.store.requeue(side.id_of(job)))

    @rule(
        data=st.data(),
        status=st.one_of(st.none(), st.sampled_from(JobStatus)),
        changes=CHANGES,
    )
    def update(
        self,
        *,
        data: st.DataObject,
        status: JobStatus | None,
        changes: dict[str, Any],
    ) -> None:
        job = self._number(data)
        if status is not None:
            changes = {**changes, "status": status}
        self.both(
            lambda side: side.store.update_status(
                side.id_of(job), lambda before: replace(before, **changes)
            )
        )

    # -- read ------------------------------------------------------------------

    @rule(
        data=st.data(),
        filters=FILTERS,
        oldest_first=st.booleans(),
        limit=st.integers(1, 4),
    )
    def list_jobs(
        self,
        *,
        data: st.DataObject,
        filters: dict[str, Any],
        oldest_first: bool,
        limit: int,
    ) -> None:
        number = self._number(data)
        self.both(
            lambda side: side.store.list(
                **filters,
                after=side.ids[number] if number < len(side.ids) else None,
                oldest_first=oldest_first,
                limit=limit,
            )
        )

    @rule(data=st.data(), limit=st.integers(1, 2))
    def list_children(self, *, data: st.DataObject, limit: int) -> None:
        parent, last = self._number(data), self._number(data)
        self.both(
            lambda side: side.store.list_children(
                side.id_of(parent), after=side.id_of(last), limit=limit
            )
        )

    # -- the two must show the same --------------------------------------------

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "sides"):
            return
        jobs = self._both_list()
        self.both(lambda side: side.store.stats(window=HOUR))
        # A look at every job after every step would be most of the work.
        for job in jobs:
            if self._seen.get(job.id) != job:
                self._agree_on(job, self.sides[0].ids.index(job.id))
        self._seen = {job.id: job for job in jobs}
        self._check_sense(jobs)

    @rule()
    def look_at_every_job(self) -> None:
        for job in self._both_list():
            self._agree_on(job, self.sides[0].ids.index(job.id))

    def _both_list(self) -> list[Job]:
        jobs = self.both(lambda side: side.store.list(limit=1000))
        assert isinstance(jobs, list)
        return jobs

    def _agree_on(self, job: Job, number: int) -> None:
        if job.fence:
            self.both(lambda side: side.store.attempts(side.id_of(number)))
        if job.children_total:
            self.both(lambda side: side.store.list_children(side.id_of(number)))
        if not job.fence:
            self.both(lambda side: side.store.payload(side.id_of(number)).data)

    def _check_sense(self, jobs: list[Job]) -> None:
        """
        What must hold in any store at any time.
        """
        for job in jobs:
            children = [child for child in jobs if child.parent_id == job.id]
            ended = [child for child in children if child.finished_at is not None]
            if self._is_counted and job.status is JobStatus.WAITING:
                assert job.children_open == len(children) - len(ended)
            assert (job.heartbeat_at is None) == (job.status != JobStatus.PROCESSING)
            assert job.attempts <= job.fence
