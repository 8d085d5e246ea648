# All services of the test bed (testbed.yaml) in one image. tools/testbed.sh builds it, after the
# image of testbed-programs.Dockerfile. The image contains no key, token or password.
ARG BASE=docker.io/library/debian:bookworm-20250520-slim
ARG PROGRAMS=dray/programs:test

FROM ${PROGRAMS} AS programs

FROM ${BASE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates \
       ceph-common ceph-mon ceph-osd curl libmagic1 openssl postgresql procps python3 python3-rados \
       python3-venv redis-server util-linux xrootd-ceph-plugins xrootd-client \
       xrootd-client-plugins xrootd-server xrootd-server-plugins \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 4735 dray \
    && useradd --uid 4735 --gid dray --home-dir /home/dray --create-home dray \
    && install -d -o dray -g dray /bed /sites/north /sites/south /srv/postgresql /srv/airflow \
       /srv/ceph
WORKDIR /bed
COPY tools/requirements-airflow.txt tools/requirements-rucio.txt tools/
# If a proxy of the host decrypts TLS, the secret contains the authorities of this proxy.
RUN --mount=type=secret,id=authorities \
    if [ -s /run/secrets/authorities ]; then export PIP_CERT=/run/secrets/authorities; fi \
    && python3 -m venv .venv \
    && .venv/bin/pip install --no-cache-dir --disable-pip-version-check --quiet \
       --requirement tools/requirements-airflow.txt \
    && python3 -m venv .tools/rucio \
    && .tools/rucio/bin/pip install --no-cache-dir --disable-pip-version-check --quiet \
       --requirement tools/requirements-rucio.txt psycopg==3.3.9 psycopg-binary==3.3.9
# Modules of the tests, which the story uses, import pytest.
COPY tools/requirements-dev.txt tools/
RUN --mount=type=secret,id=authorities \
    if [ -s /run/secrets/authorities ]; then export PIP_CERT=/run/secrets/authorities; fi \
    && .venv/bin/pip install --no-cache-dir --disable-pip-version-check --quiet \
       --constraint tools/requirements-dev.txt pytest==9.2.0
COPY --from=programs /programs engine/target/release
COPY setup.cfg VERSION ./
COPY engine/python engine/python
COPY operators operators
COPY plugins/fts plugins/fts
COPY plugins/rucio plugins/rucio
COPY integration integration
COPY docker/testbed-entry.sh /testbed-entry.sh
# New volumes get the owner and the mode of the folder in the image.
RUN install -d -o dray -g dray /srv/airflow/logs \
    && mkdir /facts && cd /facts \
    && install -d -m 700 -o dray -g dray airflow airflow-api airflow-queue airflow-rucio \
       ceph-client endpoint-north endpoint-south fts postgresql redis rucio rucio-client rucio-dray \
       rucio-fts3 story xrootd-archive xrootd-north xrootd-south
# Airflow finds the provider by these entry points.
RUN PYTHONPATH=engine/python:. .venv/bin/python -c "from pathlib import Path; \
    from integration.harness.airflow import write_metadata; write_metadata(Path('site'))"
ENV PATH=/bed/.venv/bin:/bed/engine/target/release:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/bed/engine/python:/bed/operators:/bed/plugins/fts:/bed/site:/bed \
    PYTHONDONTWRITEBYTECODE=1
USER dray
ENTRYPOINT ["/bin/bash", "/testbed-entry.sh"]
