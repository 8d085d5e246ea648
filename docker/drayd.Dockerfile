# An endpoint as an image: the engine is built from its sources, run by a user of its own.
#
#   docker build -f docker/drayd.Dockerfile -t dray/drayd .
#
# Who builds behind a proxy that looks into TLS names the authorities cargo is to believe; they do
# not get into the image:  --secret id=authorities,src=/etc/ssl/certs/ca-certificates.crt
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
# Debian's own Rust is older than the engine's floor; this one is what tools/bootstrap.sh takes too.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates cargo-web gcc libc6-dev rustc-web \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build/engine
COPY engine/Cargo.toml engine/Cargo.lock ./
COPY engine/crates crates
# Not built, but a part of the workspace.
COPY plugins/xrootd/tpc ../plugins/xrootd/tpc
# Off for a quicker build and a slower program: --build-arg CARGO_PROFILE_RELEASE_LTO=off
ARG CARGO_PROFILE_RELEASE_LTO=thin
ARG CARGO_PROFILE_RELEASE_DEBUG=false
ARG CARGO_PROFILE_RELEASE_STRIP=symbols
RUN --mount=type=secret,id=authorities \
    if [ -s /run/secrets/authorities ]; then export CARGO_HTTP_CAINFO=/run/secrets/authorities; fi \
    && cargo build --locked --release -p dray-cli

FROM ${BASE}
# The authorities are for issuers of tokens; openssl asks for the endpoint's health.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates openssl \
    && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 4735 dray \
    && useradd --uid 4735 --gid dray --home-dir /var/lib/dray --shell /usr/sbin/nologin dray \
    && install -d -o dray -g dray -m 0700 /etc/dray /var/lib/dray \
    && install -d -o dray -g dray -m 0755 /srv/data \
    && ln -s dray /usr/local/bin/drayd
COPY --from=build /build/engine/target/release/dray /usr/local/bin/dray
USER dray
WORKDIR /srv/data
VOLUME ["/etc/dray", "/var/lib/dray", "/srv/data"]
EXPOSE 4735
# An open call, so no token is needed and any certificate will do.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD \
    printf 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' \
    | timeout 4 openssl s_client -quiet -connect 127.0.0.1:4735 2>/dev/null | grep -q '"ok"'
ENTRYPOINT ["drayd"]
