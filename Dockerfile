# The service alone; PostgreSQL runs beside it (see docker-compose.yml).
FROM python:3.12-slim

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/throughline

COPY requirements.lock ./
RUN pip install --root-user-action=ignore --require-hashes --no-deps -r requirements.lock

COPY pyproject.toml README.md LICENSE alembic.ini ./
COPY alembic ./alembic
COPY app ./app
RUN pip install --root-user-action=ignore --no-deps --no-build-isolation -e . \
    && python -m compileall -q app \
    && useradd --system --create-home throughline

USER throughline
ENV HOST=0.0.0.0 PORT=8000 HEALTH_PORT=8001 LOG_FORMAT=json PROCESSES=auto
EXPOSE 8000
# `serve` answers at PORT, `worker` and `slack` at HEALTH_PORT.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["sh", "-c", "ready() { python -c \"import urllib.request as r; r.urlopen('http://127.0.0.1:$1/health/ready', timeout=4)\"; }; ready $PORT || ready $HEALTH_PORT"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["throughline"]
CMD ["serve"]
