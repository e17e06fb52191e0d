"""
docker-compose.yml starts things in an order that works, and closes what should be.
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    composed = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert isinstance(composed["services"], dict)
    return composed["services"]


def test_there_is_a_database_a_migration_and_two_workers(
    services: dict[str, Any],
) -> None:
    assert set(services) == {"postgres", "migrate", "worker-1", "worker-2"}
    assert services["worker-1"] == services["worker-2"]


def test_the_database_is_postgresql_18_with_its_data_kept(
    services: dict[str, Any],
) -> None:
    postgres = services["postgres"]
    assert postgres["image"] == "postgres:18"
    # Up to 17 it was /var/lib/postgresql/data; there, 18 would lose it.
    assert postgres["volumes"] == ["data:/var/lib/postgresql"]
    assert "pg_isready" in postgres["healthcheck"]["test"]


def test_only_this_machine_gets_at_the_database(services: dict[str, Any]) -> None:
    for service in services.values():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_the_migration_runs_once_when_the_database_is_healthy(
    services: dict[str, Any],
) -> None:
    migrate = services["migrate"]
    assert migrate["command"][0] == "migrate"
    assert migrate["restart"] == "no"
    assert migrate["depends_on"] == {"postgres": {"condition": "service_healthy"}}


def test_workers_wait_for_the_migration_and_come_back(
    services: dict[str, Any],
) -> None:
    worker = services["worker-1"]
    assert worker["command"][0] == "work"
    assert worker["restart"] == "unless-stopped"
    assert (
        worker["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    )
    assert worker["environment"] == services["migrate"]["environment"]
    assert "JOBSTORE_DSN" in worker["environment"]


def test_the_image_does_not_run_as_root() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    user = lines.index("USER jobstore")
    entry = lines.index('ENTRYPOINT ["jobstore"]')
    assert user < entry


def test_what_the_image_copies_is_there_and_let_in() -> None:
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert allowed[0] == "*"
    for line in (ROOT / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists(), name
                assert f"!{name}" in allowed, name


def test_docker_compose_itself_finds_it_valid() -> None:
    docker = shutil.which("docker")
    client = [docker, "compose"] if docker else []
    if client:
        version = [*client, "version"]
        if subprocess.run(version, check=False, capture_output=True).returncode != 0:
            client = []
    if not client:
        pytest.skip("no docker compose here")
    answer = subprocess.run(
        [*client, "--file", str(ROOT / "docker-compose.yml"), "config", "--quiet"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "JOBSTORE_PORT": "5432"},
    )
    assert answer.returncode == 0, answer.stderr
