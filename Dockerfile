# One image for every part: the argument of the entrypoint says which (worker, api, deploy operator, deploy simulator).
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS packages
COPY requirements.image.lock /tmp/requirements.image.lock
# Wheels only, each checked against its hash: no compiler is needed here, so none can be left. pip goes at the end.
RUN python3 -m venv /opt/venv \
    && /opt/venv/bin/python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --only-binary :all: \
        --require-hashes --requirement /tmp/requirements.image.lock \
    && /opt/venv/bin/python -m pip uninstall --yes --quiet pip

FROM ${BASE_IMAGE}
COPY --from=packages /opt/venv /opt/venv
COPY rolloutfleet /app/rolloutfleet
COPY worker /app/worker
COPY api /app/api
COPY deploy /app/deploy
COPY deploy/image/sitecustomize.py /app/sitecustomize.py
# HOME is for uids without an entry in passwd; bytecode is made now, since the root file system may be read-only later.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONPATH=/app \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp
RUN python -m compileall -q /app \
    && printf '#!/bin/sh\nexec python -m rolloutfleet.cli "$@"\n' > /usr/local/bin/rolloutfleet \
    && chmod 0755 /usr/local/bin/rolloutfleet
WORKDIR /app
USER 10001:10001
# No shell and no init between: the process is PID 1 itself and is sent the signals. `python -m worker` and the others
# answer SIGTERM by a drain.
ENTRYPOINT ["python", "-m"]
CMD ["worker", "--help"]
