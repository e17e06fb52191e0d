# The command line and its workers, at the versions that the tests ran with.
FROM python:3.13-slim

WORKDIR /app
COPY pyproject.toml requirements-dev.lock README.md LICENSE ./
COPY jobstore jobstore
COPY migrations migrations
# The lock's versions as constraints: what the package doesn't need stays out.
RUN grep -oE '^[A-Za-z0-9._-]+==[^ ]+' requirements-dev.lock > constraints.txt \
    && pip install --no-cache-dir --constraint constraints.txt .

RUN useradd --system --no-create-home jobstore
USER jobstore
ENTRYPOINT ["jobstore"]
CMD ["--help"]
