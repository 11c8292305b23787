# A broker in a container:
#   docker build -t ottla .
#   docker run -p 9092:9092 -v ottla-data:/var/lib/ottla ottla
# Clients that do not come from this host need to be told its name:
#   docker run -p 9092:9092 -e OTTLA_ADVERTISED_LISTENERS=PLAINTEXT://kafka.example.com:9092 ottla
# Any broker key can be set so, or with arguments: docker run ottla /etc/ottla/server.properties --set num.partitions=3

FROM python:3.12-slim AS build
WORKDIR /build
RUN python -m venv /opt/ottla
# The dependencies change seldom, the sources often: two layers, so that a rebuild does not fetch anything.
COPY pyproject.toml README.md LICENSE ./
RUN python -c "import tomllib; print('\n'.join(tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies']))" > requirements.txt \
 && /opt/ottla/bin/pip install --no-cache-dir -r requirements.txt
COPY src ./src
RUN /opt/ottla/bin/pip install --no-cache-dir --no-deps . \
 && /opt/ottla/bin/python -m compileall -q /opt/ottla/lib

FROM python:3.12-slim
COPY --from=build /opt/ottla /opt/ottla
COPY configs/docker.properties /etc/ottla/server.properties
# Made by hand: what useradd puts into a home would make it somebody else's folder, and the broker would refuse it.
RUN useradd --uid 1001 --no-create-home --home-dir /var/lib/ottla --shell /usr/sbin/nologin ottla \
 && install -d -o ottla -g ottla /var/lib/ottla
USER ottla
ENV PATH=/opt/ottla/bin:$PATH PYTHONUNBUFFERED=1
VOLUME /var/lib/ottla
EXPOSE 9092
ENTRYPOINT ["ottla", "serve"]
CMD ["/etc/ottla/server.properties"]
