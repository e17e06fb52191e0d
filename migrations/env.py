"""
Alembic's entry: online on a connection, or offline as SQL for review.

Reached in two ways, one chain: from `jobstore.migrate` with everything in
``config.attributes``, and from plain ``alembic`` with JOBSTORE_DSN and JOBSTORE_SCHEMA
(or ``-x schema=…``) in the environment. Logging is left alone: this may run inside
a service that has its own.
"""

import os

from alembic import context

from jobstore.migrate import comparison, migrating, rendering, stating

config = context.config
attributes = config.attributes
attributes.setdefault(
    "schema",
    context.get_x_argument(as_dictionary=True).get("schema")
    or os.environ.get("JOBSTORE_SCHEMA")
    or "jobstore",
)
schema = attributes["schema"]

options = {
    **comparison(schema),
    "transaction_per_migration": True,
    "on_version_apply": stating(schema),
}

if context.is_offline_mode():
    with rendering(config.output_buffer or config.stdout, schema) as script:
        context.configure(
            dialect_name="postgresql",
            literal_binds=True,
            # Not the driver's, in which a percent sign would have to be doubled.
            dialect_opts={"paramstyle": "named"},
            output_buffer=script,
            **options,
        )
        with context.begin_transaction():
            context.run_migrations()
elif "connection" in attributes:
    context.configure(connection=attributes["connection"], **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    dsn = os.environ.get("JOBSTORE_DSN") or config.get_main_option("sqlalchemy.url")
    if not dsn:
        message = "set JOBSTORE_DSN, for example postgresql://user@localhost/jobs"
        raise SystemExit(message)
    with migrating(dsn, schema=schema) as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
