# The programs of dray, and its plug-ins for XRootD servers: an image without a system, from which
# testbed.Dockerfile copies them.
ARG BASE=docker.io/library/debian:bookworm-20250520-slim

FROM ${BASE} AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates cargo-web rustc-web g++ gcc \
       libc6-dev libssl-dev libxrootd-client-dev libxrootd-private-dev libxrootd-server-dev make \
       nlohmann-json3-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /build
COPY engine engine
COPY plugins/xrootd plugins/xrootd
ARG CARGO_PROFILE_RELEASE_LTO=off
ARG CARGO_PROFILE_RELEASE_DEBUG=false
# The secret has the authorities for hosts behind a proxy that decrypts TLS.
RUN --mount=type=secret,id=authorities \
    if [ -s /run/secrets/authorities ]; then export CARGO_HTTP_CAINFO=/run/secrets/authorities; fi \
    && cd engine \
    && cargo build --locked --release -p dray-cli -p dray-xrootd-tpc --bins \
    && make -C ../plugins/xrootd OUT=/build/engine/target/release \
    && mkdir /programs \
    && cp target/release/dray target/release/dray-xrootd-tpc target/release/lib*.so /programs/

FROM scratch
COPY --from=build /programs /programs
