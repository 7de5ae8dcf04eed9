# SPDX-License-Identifier: Apache-2.0
# Sourced in stages of the Dockerfile: what the images are for. TARGETARCH is the builder's word for it, amd64 or arm64,
# which is Debian's, too; without it they are for the machine at hand. Programs of another architecture are
# cross-compiled with Debian's compiler and libraries, side by side with the machine's own, and run by qemu.
machine=$(dpkg --print-architecture)
architecture=${TARGETARCH:-$machine}
case $architecture in
  amd64) processor=x86_64 ;;
  arm64) processor=aarch64 ;;
  *) echo "no images for $architecture: amd64 and arm64 are known" >&2; exit 1 ;;
esac
triple=$processor-linux-gnu
cross=0 emulator=
if [ "$architecture" != "$machine" ]; then
  cross=1 emulator=$(command -v qemu-$processor || true)
fi
