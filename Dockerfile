# A node of Tidelock without a shell, as a user without privileges:
#
#     docker build -t tidelock .
#     docker run -v tidelock:/var/lib/tidelock -p 8001:8001 -p 7001:7001 tidelock serve --secure --advertise-peer HOST
#
# Every setting of `serve` is a flag, or a variable TIDELOCK_…; docs/reference/settings.md lists them. A container that others
# reach needs TIDELOCK_ADVERTISE_PEER, and TLS: TIDELOCK_SECURE or TIDELOCK_TLS_DIR.

FROM docker.io/library/rust:1.95.0-slim-bookworm AS build
# The allocator, Lua and the cryptography are built from C.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev make && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry --mount=type=cache,target=/src/target \
    cargo build --locked --release --bin tidelock && strip -o /tidelock target/release/tidelock
# A volume gets the owner of this directory when it is created.
RUN install -d -m 0700 /data

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /tidelock /usr/bin/tidelock
COPY --from=build --chown=65532:65532 /data /var/lib/tidelock
COPY LICENSE /usr/share/doc/tidelock/LICENSE
USER 65532:65532
ENV TIDELOCK_DATA_DIR=/var/lib/tidelock \
    TIDELOCK_LISTEN_HTTP=0.0.0.0:8001 \
    TIDELOCK_LISTEN_RESP=0.0.0.0:7001 \
    TIDELOCK_RESP_CLUSTER=0.0.0.0:7101 \
    TIDELOCK_LISTEN_PEER=0.0.0.0:9001
VOLUME /var/lib/tidelock
# HTTP, Redis protocol, Redis Cluster, peers.
EXPOSE 8001 7001 7101 9001
# Whether the process answers; orchestrators that know more ask /readyz. With TLS, set TIDELOCK_URL=https://localhost:8001
# and TIDELOCK_CA to the certificate of the CA, /var/lib/tidelock/tls/ca.crt with --secure.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s CMD ["/usr/bin/tidelock", "health", "--live"]
ENTRYPOINT ["/usr/bin/tidelock"]
CMD ["serve"]
