"""
The operator's functions do what the library's verbs do, to the last counter.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from jobstore import migrate
from jobstore.errors import InvalidTransition, JobNotFound, LeaseLost
from jobstore.lifecycle import JobClass, JobStatus
from jobstore.model import ChildFailure, Claim
from tests import servers
from tests.operators.support import Place, open_place

UNKNOWN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
LATER = datetime(2100, 1, 1, tzinfo=UTC)


# Each brings about one situation and returns the id of the job it is about.


def queued(place: Place) -> str:
    return place.add().id


def scheduled(place: Place) -> str:
    return place.add(available_at=LATER).id


def retrying(place: Place) -> str:
    place.add()
    claim = place.claim()
    place.fail(claim, final=False)
    return claim.job.id


def processing(place: Place) -> str:
    place.add()
    return place.claim(lease=timedelta(hours=1)).job.id


def exhausted(place: Place) -> str:
    job = place.add(max_attempts=1)
    place.ask("UPDATE {s}.job SET attempts = 1 WHERE id = %s", job.id)
    return job.id


def completed(place: Place) -> str:
    place.add()
    claim = place.claim()
    place.store.complete(claim.lease, b"done")
    return claim.job.id


def failed(place: Place) -> str:
    place.add()
    claim = place.claim()
    place.fail(claim)
    return claim.job.id


def cancelled(place: Place) -> str:
    job = place.add()
    place.store.cancel(job.id, reason="no longer wanted")
    return job.id


def cancelled_while_held(place: Place) -> str:
    job_id = processing(place)
    place.store.cancel(job_id, reason="no longer wanted")
    return job_id


def family(
    place: Place, children: int = 3, policy: ChildFailure = ChildFailure.RESUME
) -> tuple[str, list[str]]:
    place.add("parent")
    claim = place.claim()
    made = place.fan_out(claim, [f"child-{n}" for n in range(children)], policy)
    return claim.job.id, [child.id for child in made]


def waiting(place: Place) -> str:
    return family(place)[0]


def waiting_with_held_child(place: Place) -> str:
    parent, _ = family(place)
    place.claim("w2")
    return parent


def waiting_with_failed_child(place: Place) -> str:
    parent, _ = family(place)
    place.fail(place.claim())
    return parent


def three_storeys(place: Place) -> str:
    parent, _ = family(place, 2)
    place.fan_out(place.claim(), ["grandchild-1", "grandchild-2"])
    place.claim("w3")
    return parent


def middle_of_three_storeys(place: Place) -> str:
    family(place, 1)
    claim = place.claim()
    place.fan_out(claim, ["grandchild-1", "grandchild-2"])
    return claim.job.id


def middle_that_fails_all(place: Place) -> str:
    place.add("top")
    top = place.claim()
    place.fan_out(top, ["middle"], ChildFailure.FAIL)
    middle = place.claim()
    (leaf,) = place.fan_out(middle, ["leaf"], ChildFailure.FAIL)
    return leaf.id


def last_child_of_resuming(place: Place) -> str:
    _, (child,) = family(place, 1)
    return child


def last_child_of_failing(place: Place) -> str:
    _, (child,) = family(place, 1, ChildFailure.FAIL)
    return child


def one_of_three_children(place: Place) -> str:
    _, children = family(place)
    return children[1]


def failed_child_of_waiting(place: Place) -> str:
    family(place)
    claim = place.claim()
    place.fail(claim)
    return claim.job.id


def failed_child_of_failed_parent(place: Place) -> str:
    family(place, 1, ChildFailure.FAIL)
    claim = place.claim()
    place.fail(claim)
    return claim.job.id


def failed_parent(place: Place) -> str:
    parent, _ = family(place, 1, ChildFailure.FAIL)
    place.fail(place.claim())
    return parent


def cancelled_child_of_cancelled_parent(place: Place) -> str:
    parent, children = family(place)
    place.store.cancel(parent)
    return children[0]


def failed_parent_with_reopened_child(place: Place) -> str:
    child = failed_child_of_failed_parent(place)
    parent = place.store.get(child).parent_id
    assert parent is not None
    place.store.requeue(child)
    place.store.requeue(parent)
    return parent


def scheduled_child_of_waiting(place: Place) -> str:
    family(place)
    claim = place.claim()
    place.fail(claim, final=False)
    return claim.job.id


def top_over_failed_middle_with_reopened_leaf(place: Place) -> str:
    top, _ = family(place, 2)
    middle = place.claim()
    (leaf,) = place.fan_out(middle, ["leaf"], ChildFailure.FAIL)
    place.store.update_status(
        leaf.id, lambda job: replace(job, job_class=JobClass.INTERACTIVE)
    )
    place.fail(place.claim())
    place.store.requeue(leaf.id)
    return top


Situation = Callable[[Place], str]

SITUATIONS: list[Situation] = [
    queued,
    scheduled,
    retrying,
    processing,
    exhausted,
    completed,
    failed,
    cancelled,
    cancelled_while_held,
    waiting,
    waiting_with_held_child,
    waiting_with_failed_child,
    three_storeys,
    middle_of_three_storeys,
    middle_that_fails_all,
    last_child_of_resuming,
    last_child_of_failing,
    one_of_three_children,
    failed_child_of_waiting,
    failed_child_of_failed_parent,
    failed_parent,
    cancelled_child_of_cancelled_parent,
    failed_parent_with_reopened_child,
    scheduled_child_of_waiting,
    top_over_failed_middle_with_reopened_leaf,
]

each_situation = pytest.mark.parametrize(
    "situation", SITUATIONS, ids=lambda situation: situation.__name__
)


def outcome(place: Place, situation: Situation, verb: Callable[[str], Any]) -> Any:
    """
    Bring the situation about, run the verb, and return all that it left behind.
    """
    place.empty()
    job_id = situation(place)
    try:
        verb(job_id)
    except (InvalidTransition, psycopg.errors.ObjectNotInPrerequisiteState):
        return "refused", place.dump()
    return "done", place.dump()


@each_situation
def test_cancel_job_does_what_cancel_does(place: Place, situation: Situation) -> None:
    by_store = outcome(
        place, situation, lambda job_id: place.store.cancel(job_id, reason="stop it")
    )
    by_function = outcome(
        place,
        situation,
        lambda job_id: place.ask(
            "SELECT * FROM {s}.cancel_job(%s, 'stop it', false)", job_id
        ),
    )
    assert by_function == by_store


@each_situation
def test_requeue_job_does_what_requeue_does(place: Place, situation: Situation) -> None:
    by_store = outcome(place, situation, place.store.requeue)
    by_function = outcome(
        place,
        situation,
        lambda job_id: place.ask(
            "SELECT * FROM {s}.requeue_job(%s, 'again', false)", job_id
        ),
    )
    assert by_function == by_store


@each_situation
@pytest.mark.parametrize("function", ["cancel_job", "requeue_job"])
def test_a_dry_run_announces_and_changes_nothing(
    place: Place, situation: Situation, function: str
) -> None:
    job_id = situation(place)
    before = place.ask("SELECT * FROM {s}.job ORDER BY id"), place.dump()
    ask = f"SELECT * FROM {{s}}.{function}(%s, 'why not', dry_run => %s)"
    try:
        announced = place.ask(ask, job_id, True)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        announced = []
    assert (place.ask("SELECT * FROM {s}.job ORDER BY id"), place.dump()) == before
    assert place.value("SELECT count(*) FROM {s}.audit") == 0
    try:
        done = place.ask(ask, job_id, False)
    except psycopg.errors.ObjectNotInPrerequisiteState:
        done = []
    own = [row for row in done if row[2] == "cancelled" or function == "requeue_job"]
    assert sorted(announced) == sorted(own)


def three_failures(place: Place) -> list[str]:
    ids = []
    for kind in ("a", "b", "c"):
        place.add(kind)
        claim = place.claim()
        place.fail(claim, code=f"E_{kind.upper()}")
        ids.append(claim.job.id)
    family(place, 2)
    for _ in range(2):
        claim = place.claim()
        place.fail(claim, code="E_CHILD")
        ids.append(claim.job.id)
    return ids


def test_retry_failed_does_what_requeue_does_to_each(place: Place) -> None:
    for job_id in three_failures(place):
        place.store.requeue(job_id)
    by_store = place.dump()
    place.empty()
    ids = three_failures(place)
    rows = place.ask("SELECT * FROM {s}.retry_failed('fixed', dry_run => false)")
    assert place.dump() == by_store
    assert sorted(rows) == sorted((job_id, "failed", "queued") for job_id in ids)


@pytest.mark.parametrize(
    ("filters", "kinds"),
    [
        ("error_code => 'E_B'", ["b"]),
        ("kind => 'c'", ["c"]),
        ("queue => 'default'", ["a", "b", "c", "child-0", "child-1"]),
        ("queue => 'nowhere'", []),
        ("tenant => 'default', max_rows => 2", ["a", "b"]),
        ("tenant => 'somebody'", []),
        ("failed_before => statement_timestamp() - interval '1 hour'", []),
        ("failed_after => statement_timestamp() + interval '1 hour'", []),
        ("failed_after => '-infinity', kind => 'a'", ["a"]),
    ],
)
def test_retry_failed_filters(place: Place, filters: str, kinds: list[str]) -> None:
    three_failures(place)
    for dry_run in (True, False):
        rows = place.ask(
            f"SELECT kind FROM {{s}}.retry_failed('fixed', {dry_run}, {filters}) "
            "AS chosen JOIN {s}.job USING (id) ORDER BY kind"
        )
        assert [kind for (kind,) in rows] == kinds
    left = place.value("SELECT count(*) FROM {s}.job WHERE status = 'failed'")
    assert left == 5 - len(kinds)


def test_retry_failed_leaves_parents_to_their_children(place: Place) -> None:
    parent = failed_parent(place)
    (child,) = [job.id for job in place.store.list_children(parent)]
    rows = place.ask("SELECT * FROM {s}.retry_failed('fixed', false)")
    assert rows == [(child, "failed", "queued")]
    rows = place.ask(
        "SELECT * FROM {s}.retry_failed('now', false, error_code => 'CHILD_FAILED')"
    )
    assert rows == [(parent, "failed", "queued")]


def held_by_two(place: Place) -> None:
    for kind in ("a", "b", "c"):
        place.add(kind)
    place.claim("dead", lease=timedelta(hours=1))
    place.claim("dead")
    place.claim("alive")


def test_release_worker_does_what_release_does_to_each(place: Place) -> None:
    held_by_two(place)
    for job in place.store.list(worker="dead"):
        place.store.release(Claim(job).lease)
    by_store = place.dump()
    place.empty()
    held_by_two(place)
    place.ask("UPDATE {s}.job SET heartbeat_at = heartbeat_at - interval '1 hour'")
    rows = place.ask("SELECT * FROM {s}.release_worker('dead', 'its node died', false)")
    assert place.dump() == by_store
    assert [row[1:] for row in rows] == [("processing", "queued")] * 2


def test_a_released_worker_that_wakes_up_changes_nothing(place: Place) -> None:
    place.add()
    claim = place.claim("undead")
    place.silence(claim.job.id, 120)
    place.ask("SELECT * FROM {s}.release_worker('undead', 'silent', false)")
    with pytest.raises(LeaseLost):
        place.store.complete(claim.lease, b"too late")
    assert place.claim("other").job.fence == claim.job.fence + 1


def test_release_worker_refuses_one_that_lives(place: Place) -> None:
    held_by_two(place)
    before = place.dump()
    for dry_run in (True, False):
        with pytest.raises(
            psycopg.errors.ObjectNotInPrerequisiteState, match="sign of life"
        ):
            place.ask("SELECT * FROM {s}.release_worker('dead', 'why', %s)", dry_run)
    assert place.dump() == before
    rows = place.ask(
        "SELECT * FROM {s}.release_worker("
        "'dead', 'killed it', false, silent_for => '0')"
    )
    assert len(rows) == 2


def test_release_worker_takes_no_more_than_asked_for(place: Place) -> None:
    held_by_two(place)
    rows = place.ask(
        "SELECT * FROM {s}.release_worker("
        "'dead', 'why', false, silent_for => '0', max_rows => 1)"
    )
    assert len(rows) == 1
    assert place.ask("SELECT worker, running FROM {s}.workers ORDER BY 1") == [
        ("alive", 1),
        ("dead", 1),
    ]


def test_release_worker_of_nobody_does_nothing(place: Place) -> None:
    assert place.ask("SELECT * FROM {s}.release_worker('nobody', 'why', false)") == []
    assert place.value("SELECT count(*) FROM {s}.audit") == 0


@pytest.mark.parametrize(
    "call",
    [
        "requeue_job(%s, ' ')",
        "requeue_job(%s, NULL)",
        "cancel_job(%s, '')",
        "release_worker(%s, '')",
        "retry_failed('', kind => %s)",
        "retry_failed('why', kind => %s, max_rows => 0)",
        "retry_failed('why', kind => %s, max_rows => 10001)",
        "retry_failed('why', kind => %s, max_rows => NULL)",
        "release_worker(%s, 'why', max_rows => -1)",
    ],
)
def test_bad_arguments_are_refused(place: Place, call: str) -> None:
    job_id = failed(place)
    with pytest.raises(psycopg.errors.InvalidParameterValue):
        place.ask(f"SELECT * FROM {{s}}.{call}", job_id)


@pytest.mark.parametrize("function", ["requeue_job", "cancel_job"])
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("job_id", [UNKNOWN, "not an id", None])
def test_an_unknown_job_is_an_error(
    place: Place, function: str, dry_run: bool, job_id: str | None
) -> None:
    with pytest.raises(JobNotFound):
        place.store.get(UNKNOWN)
    with pytest.raises(psycopg.errors.NoDataFound, match="no job"):
        place.ask(f"SELECT * FROM {{s}}.{function}(%s, 'why', %s)", job_id, dry_run)


def test_each_change_leaves_an_audit_row(place: Place) -> None:
    place.ask("SET application_name = 'night shift'")
    job_id = failed(place)
    place.ask(
        "SELECT * FROM {s}.requeue_job(%s, 'try again', false)", f" {job_id.lower()} "
    )
    place.ask("SELECT * FROM {s}.cancel_job(%s, 'no, stop', false)", job_id)
    place.ask("SELECT * FROM {s}.cancel_job(%s, 'twice is nothing', false)", job_id)
    place.ask("SELECT * FROM {s}.retry_failed('all of ocr', false, queue => 'ocr')")
    rows = place.ask(
        "SELECT action, reason, job_ids, who, application, arguments ->> 'queue', "
        "at > statement_timestamp() - interval '1 minute' FROM {s}.audit ORDER BY id"
    )
    who = place.value("SELECT session_user::text")
    assert rows == [
        ("requeue_job", "try again", [job_id], who, "night shift", None, True),
        ("cancel_job", "no, stop", [job_id], who, "night shift", None, True),
        ("retry_failed", "all of ocr", [], who, "night shift", "ocr", True),
    ]


def test_a_reason_shows_on_the_cancelled_job_like_that_of_the_verb(
    place: Place,
) -> None:
    job_id = queued(place)
    place.ask("SELECT * FROM {s}.cancel_job(%s, 'ticket 4711', false)", job_id)
    assert place.store.get(job_id).error_message == "ticket 4711"


def test_cancel_job_tells_the_parent_that_goes_on(place: Place) -> None:
    child = last_child_of_resuming(place)
    parent = place.store.get(child).parent_id
    rows = place.ask("SELECT * FROM {s}.cancel_job(%s, 'why', false)", child)
    assert rows == [
        (child, "queued", "cancelled"),
        (parent, "waiting", "queued"),
    ]


def test_cancel_job_waits_for_nobody_long(place: Place, dsn: str) -> None:
    job_id = queued(place)
    with servers.connect(dsn) as other:
        other.autocommit = False
        other.execute(f'UPDATE "{place.schema}".job SET kind = kind'.encode())
        with pytest.raises(psycopg.errors.LockNotAvailable):
            place.ask("SELECT * FROM {s}.cancel_job(%s, 'why', false)", job_id)
        other.rollback()


def test_cancelling_races_with_completing(place: Place, dsn: str) -> None:
    """
    A completion that commits while cancel_job waits for the row wins, whole.
    """
    _, (child,) = family(place, 1)
    claim = place.claim()
    assert claim.job.id == child
    with servers.connect(dsn) as other:
        other.autocommit = False
        other.execute(
            f'SELECT FROM "{place.schema}".job WHERE id = %s FOR UPDATE'.encode(),
            [child],
        )
        refused: list[Exception] = []

        def cancel() -> None:
            try:
                place.ask("SELECT * FROM {s}.cancel_job(%s, 'why', false)", child)
            except psycopg.errors.ObjectNotInPrerequisiteState as error:
                refused.append(error)

        thread = threading.Thread(target=cancel)
        pid = place.connection.info.backend_pid
        thread.start()
        _wait_until_blocked(dsn, pid)
        other.execute(
            f"""UPDATE "{place.schema}".job
            SET status = 'failed', error_code = 'E', finished_at = now(),
                heartbeat_at = NULL, lease = NULL
            WHERE id = %s""".encode(),
            [child],
        )
        other.commit()
        thread.join()
    assert len(refused) == 1
    assert place.store.get(child).status == "failed"
    assert place.value("SELECT count(*) FROM {s}.audit") == 0


def _wait_until_blocked(dsn: str, pid: int) -> None:
    with servers.connect(dsn) as watcher:
        for _ in range(100_000):
            (blocked,) = watcher.execute(
                "SELECT cardinality(pg_blocking_pids(%s))", [pid]
            ).fetchone() or (0,)
            if blocked:
                return
    raise AssertionError("it never waited")


def test_functions_mean_their_own_names(place: Place) -> None:
    """
    A schema of the caller's in front of the search_path does not reach them.
    """
    job_id = failed(place)
    place.ask("CREATE TEMPORARY TABLE job (id text, status text)")
    place.ask("SET search_path = pg_temp, public")
    assert place.ask("SELECT * FROM {s}.requeue_job(%s, 'why', false)", job_id) == [
        (job_id, "failed", "queued")
    ]
    place.ask("DROP TABLE pg_temp.job")


@pytest.mark.parametrize("way", ["from the start", "down and up again"])
def test_functions_are_for_those_who_were_given_them(
    fresh_place: Place, dsn: str, way: str
) -> None:
    """
    Without a right they change nothing; with that one alone they do all, and say who.
    """
    place = fresh_place
    if way != "from the start":
        migrate.downgrade(dsn, "0004", schema=place.schema)
        migrate.upgrade(dsn, schema=place.schema)
    job_id = failed(place)
    ask = f"SELECT * FROM {place.schema}.requeue_job(%s, 'why', false)".encode()
    with servers.created_role(dsn) as weak:
        role = make_url(weak).username
        place.ask(f'GRANT USAGE ON SCHEMA {{s}} TO "{role}"')
        with servers.connect(weak) as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(ask, [job_id])
            assert place.store.get(job_id).status == "failed"
            place.ask(
                "GRANT EXECUTE ON FUNCTION {s}.requeue_job(text, text, boolean) "
                f'TO "{role}"'
            )
            connection.execute(ask, [job_id])
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {place.schema}.audit".encode())
    assert place.store.get(job_id).status == "queued"
    assert place.ask("SELECT who, action FROM {s}.audit") == [(role, "requeue_job")]


def test_nobody_makes_a_function_mean_other_tables(place: Place) -> None:
    """
    What runs with its owner's rights must not look up names along a caller's path.
    """
    unsafe = place.ask(
        """
        SELECT proname FROM pg_proc
        WHERE pronamespace = '{s}'::regnamespace AND prosecdef
          AND NOT 'search_path=pg_catalog, pg_temp' = ANY(coalesce(proconfig, '{}'))
    """
    )
    assert unsafe == []
    open_to_all = place.ask("""
        SELECT proname FROM pg_proc,
            aclexplode(coalesce(proacl, acldefault('f', proowner)))
        WHERE pronamespace = '{s}'::regnamespace AND prosecdef AND grantee = 0
    """)
    assert open_to_all == []
    assert (
        place.value(
            "SELECT count(*) FROM pg_proc "
            "WHERE pronamespace = '{s}'::regnamespace AND prosecdef"
        )
        == 6
    )


@pytest.mark.parametrize("name", ["short", "o'\"clock" * 7])
def test_idle_workers_hear_of_what_is_ready_again(database: str, name: str) -> None:
    migrate.upgrade(database, schema=name)
    for place in open_place(database, name):
        hear_of_what_is_ready_again(place)


def hear_of_what_is_ready_again(place: Place) -> None:
    heard: queue.Queue[str | None] = queue.Queue()
    listening = place.store.listen(heard.put)
    try:
        assert heard.get(timeout=30) is None
        for name in ("requeued", "retried", "released", "resumed", "left alone"):
            place.add(queue=name)
        (failed,) = place.store.claim(1, queue="requeued")
        place.fail(failed)
        (retried,) = place.store.claim(1, queue="retried")
        place.fail(retried)
        (held,) = place.store.claim(1, queue="released", worker="dead")
        (parent,) = place.store.claim(1, queue="resumed")
        (child,) = place.store.fan_out(parent.lease, [parent.job.child(kind="c")])
        place.store.cancel(place.store.list(queue="left alone")[0].id)
        for call in (
            f"requeue_job('{failed.job.id}', 'why'",
            "retry_failed('why', queue => 'retried'",
            "release_worker('dead', 'why', silent_for => '0'",
            f"cancel_job('{child.job.id}', 'why'",
        ):
            place.ask(f"SELECT * FROM {{s}}.{call})")
            place.ask(f"SELECT * FROM {{s}}.{call}, dry_run => false)")
        # The last word of this test's own: nothing can come after it unheard.
        place.connection.execute(
            "SELECT pg_notify(%s, 'the end')", [place.store._core.channel]
        )
        told = [heard.get(timeout=30)]
        while told[-1] != "the end":
            told.append(heard.get(timeout=30))
        assert [one for one in told if one != "the end"] == [
            "requeued",
            "retried",
            "released",
            "resumed",
        ]
    finally:
        listening.close()
    assert place.store.get(held.job.id).status is JobStatus.QUEUED
