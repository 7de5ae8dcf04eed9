# SPDX-License-Identifier: Apache-2.0
# A stock Python client of gRPC for the tests in the cluster, with what downloads models and serves them.
ARG BASE=debian:experimental
FROM ${BASE}
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
      curl python3-venv rclone && apt-get clean && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /venv \
    && /venv/bin/pip install -q --no-cache-dir grpcio==1.85.1 grpcio-tools==1.85.1 "moto[server]==5.2.5"
WORKDIR /continuo
COPY proto proto
COPY tests/e2e/fleet.py tests/e2e/
COPY tests/chaos/clients.py tests/chaos/traffic.py tests/chaos/
COPY deploy/cluster/load.py deploy/cluster/model_sources.py deploy/cluster/
USER 65532:65532
CMD ["sleep", "infinity"]
