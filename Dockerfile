# onejob with the service, PostgreSQL and buckets. Build: docker build -t onejob .
# Every dependency is locked by its hash; the image runs without root, and its file system may be read-only.
FROM python:3.13-slim AS build
WORKDIR /build
COPY requirements/serve.txt requirements/serve.txt
RUN python -m venv /opt/onejob \
    && /opt/onejob/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements/serve.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/onejob/bin/pip install --no-cache-dir --no-deps --no-build-isolation . \
    && /opt/onejob/bin/pip uninstall --yes pip

FROM python:3.13-slim
RUN useradd --system --uid 10001 --home-dir /var/lib/onejob --create-home onejob
COPY --from=build /opt/onejob /opt/onejob
ENV PATH=/opt/onejob/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/tmp \
    ONEJOB_HOST=0.0.0.0 \
    ONEJOB_AUTH=true \
    ONEJOB_LOG_FORMAT=json
USER 10001:10001
# The default store is a SQLite file here; the replicas of buckets go to /tmp.
WORKDIR /var/lib/onejob
VOLUME /var/lib/onejob
EXPOSE 8001
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8001/healthz', timeout=4)"]
ENTRYPOINT ["onejob"]
CMD ["serve"]
