# SPDX-License-Identifier: Apache-2.0
# The images of Continuo: targets gateway, worker-cpu, worker-cuda and cli. deploy/images/build.sh builds them.
# CUDA is the major version of worker-cuda, 13 or 12.
#
# gRPC and Protocol Buffers come from Debian experimental: unstable and everything before it has
# gRPC 1.51, which lacks the limits against floods of HTTP/2 frames. All else is Debian unstable.
ARG BASE=debian:experimental
ARG CUDA=13

# TARGETARCH is what the images are for, amd64 or arm64; for another one than the builder's, programs are cross-compiled.
FROM --platform=$BUILDPLATFORM ${BASE} AS toolchain
ARG TARGETARCH
COPY deploy/images/apt-preferences /etc/apt/preferences.d/continuo
COPY deploy/images/target.sh deploy/images/toolchain.sh /toolchain/
RUN /toolchain/toolchain.sh

# What the tests need on top: `deploy/images/test.sh` runs them there.
FROM toolchain AS toolchain-tests
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
      curl git iproute2 libbenchmark-dev libgmock-dev libgtest-dev openssl procps python3-venv util-linux \
    && apt-get clean && rm -rf /var/lib/apt/lists/*

FROM toolchain AS build
ARG TARGETARCH
ARG VERSION_SUFFIX=
WORKDIR /src
COPY . .
RUN --mount=type=cache,id=continuo-ccache,target=/ccache \
    --mount=type=cache,id=continuo-cargo,target=/cargo \
    --mount=type=cache,id=continuo-cargo-target,target=/src/build/cargo \
    export CCACHE_DIR=/ccache CARGO_HOME=/cargo \
    && deploy/images/configure.sh -DCONTINUO_TESTS=OFF -DCONTINUO_VERSION_SUFFIX="$VERSION_SUFFIX" \
    && ninja -C build/release -j "$(nproc)" --quiet continuo-gateway continuo-worker continuo \
    && python3 scripts/third_party_notices.py --json > build/crates.json
# Each image's root: the program, the libraries that it loads and the packages that they are from.
RUN deploy/images/make_root.sh gateway build/release/bin/continuo-gateway /out/gateway \
    && deploy/images/make_root.sh worker-cpu build/release/bin/continuo-worker /out/worker-cpu build/crates.json \
    && deploy/images/make_root.sh cli build/release/bin/continuo /out/cli

# A host compiler for .cu files: CUDA 13.0 takes up to g++ 15, nvcc of CUDA 12.4 up to g++ 13. All else is as in
# the other images.
FROM toolchain AS toolchain-cuda-13
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
      g++-14 python3-pip \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
ENV CUDA_TOOLKIT=build/cuda-toolkit CUDA_PRESET=cuda CUDA_IMAGE=worker-cuda CUDAHOSTCXX=/usr/bin/g++-14

FROM toolchain AS toolchain-cuda-12
RUN apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends \
      g++-13 python3-pip \
    && apt-get clean && rm -rf /var/lib/apt/lists/*
ENV CUDA_TOOLKIT=build/cuda-toolkit-12 CUDA_PRESET=cuda12 CUDA_IMAGE=worker-cuda12 CUDAHOSTCXX=/usr/bin/g++-13

FROM toolchain-cuda-${CUDA} AS build-cuda
ARG CUDA
ARG VERSION_SUFFIX=
WORKDIR /src
COPY kernels/cuda/requirements.txt kernels/cuda/requirements-12.txt kernels/cuda/
COPY scripts/cuda_toolkit.sh scripts/
RUN scripts/cuda_toolkit.sh pip3 "$CUDA"
COPY . .
RUN --mount=type=cache,id=continuo-ccache,target=/ccache \
    --mount=type=cache,id=continuo-cargo,target=/cargo \
    --mount=type=cache,id=continuo-cargo-target,target=/src/build/cargo \
    export CCACHE_DIR=/ccache CARGO_HOME=/cargo \
    && cmake --preset "$CUDA_PRESET" -DCONTINUO_TESTS=OFF -DCONTINUO_VERSION_SUFFIX="$VERSION_SUFFIX" \
      -DCMAKE_CUDA_HOST_COMPILER="$CUDAHOSTCXX" -DCMAKE_SKIP_BUILD_RPATH=ON \
    && ninja -C "build/$CUDA_PRESET" -j "$(nproc)" --quiet continuo-worker \
    && python3 scripts/third_party_notices.py --json > build/crates.json
RUN export LD_LIBRARY_PATH=/src/$CUDA_TOOLKIT/nvidia/cu$CUDA/lib:/src/$CUDA_TOOLKIT/nvidia/nccl/lib \
    && deploy/images/make_root.sh "$CUDA_IMAGE" "build/$CUDA_PRESET/bin/continuo-worker" /out/worker-cuda \
      build/crates.json

# No shell, no package manager: programs run as an unprivileged user and write nothing.
FROM scratch AS runtime
USER 65532:65532
ENV PATH=/usr/bin
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.vendor="Continuo" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      io.continuo.sbom="/usr/share/continuo/sbom.cdx.json"

FROM runtime AS gateway
LABEL org.opencontainers.image.title="continuo-gateway" \
      org.opencontainers.image.description="Routes streaming LLM requests to Continuo workers"
COPY --from=build /out/gateway /
EXPOSE 50050 8080 9091
ENTRYPOINT ["/usr/bin/continuo-gateway"]

FROM runtime AS worker-cpu
LABEL org.opencontainers.image.title="continuo-worker" \
      org.opencontainers.image.description="Runs a language model on the CPU for Continuo"
COPY --from=build /out/worker-cpu /
EXPOSE 50051 9090
ENTRYPOINT ["/usr/bin/continuo-worker"]

# The driver's libraries are the node's: NVIDIA's container runtime mounts libcuda.so.1 (compute) and
# libnvidia-ml.so.1 (utility), which tells why a device was lost.
FROM runtime AS worker-cuda
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
LABEL org.opencontainers.image.title="continuo-worker-cuda" \
      org.opencontainers.image.description="Runs a language model on NVIDIA GPUs for Continuo"
COPY --from=build-cuda /out/worker-cuda /
EXPOSE 50051 9090
ENTRYPOINT ["/usr/bin/continuo-worker"]

FROM runtime AS cli
LABEL org.opencontainers.image.title="continuo" \
      org.opencontainers.image.description="Continuo's client for people, and its bench"
COPY --from=build /out/cli /
ENTRYPOINT ["/usr/bin/continuo"]
