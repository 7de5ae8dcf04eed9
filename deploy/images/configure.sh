#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# configure.sh OPTIONS...: configures the preset release for what the images are for, in a stage of the Dockerfile.
set -euo pipefail
. "$(dirname "$0")/target.sh"
if [ "$cross" = 1 ]; then
  export PKG_CONFIG_LIBDIR=/usr/lib/$triple/pkgconfig:/usr/share/pkgconfig
  set -- "$@" -DCMAKE_SYSTEM_NAME=Linux "-DCMAKE_SYSTEM_PROCESSOR=$processor" "-DCMAKE_C_COMPILER=$triple-gcc" \
    "-DCMAKE_CXX_COMPILER=$triple-g++"
fi
exec cmake --preset release "$@"
