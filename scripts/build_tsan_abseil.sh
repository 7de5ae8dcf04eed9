#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Abseil with -fsanitize=thread from Debian's source package, into
# build/tsan-abseil/install: Debian's binary is not instrumented, so ThreadSanitizer would report
# every correctly locked absl::Mutex as a race. Does nothing where it is already built.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/tsan-abseil
[ -f "$root/install/.done" ] && exit 0
mkdir -p "$root/apt/lists/partial" "$root/src"

# A source list of our own, made from the machine's binary one; the system's apt stays as it is.
sources=$root/apt/sources.list
: >"$sources"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  [ -f "$file" ] && sed -nE 's/^deb (.*)/deb-src \1/p' "$file" >>"$sources"
done
mkdir -p "$root/apt/parts"
for file in /etc/apt/sources.list.d/*.sources; do
  [ -f "$file" ] && sed 's/^Types:.*/Types: deb-src/' "$file" >"$root/apt/parts/$(basename "$file")"
done
apt_options=(-o "Dir::Etc::SourceList=$sources" -o "Dir::Etc::SourceParts=$root/apt/parts"
             -o "Dir::State::Lists=$root/apt/lists" -o APT::Sandbox::User=root)
apt-get "${apt_options[@]}" -qq update
(cd "$root/src" && apt-get "${apt_options[@]}" -qq source --download-only abseil)

cd "$root/src"
rm -rf tree && mkdir tree
tar -xf abseil_*.orig.tar.* -C tree --strip-components=1
tar -xf abseil_*.debian.tar.* -C tree
(cd tree && while read -r patch; do
  case "$patch" in ''|\#*) ;; *) patch -s -p1 <"debian/patches/$patch" ;; esac
done <debian/patches/series)
launcher=()
command -v ccache >/dev/null && launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
cmake -S tree -B "$root/build" -G Ninja "${launcher[@]}" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_STANDARD=17 -DCMAKE_CXX_FLAGS="-fsanitize=thread -O1 -g1" \
  -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DABSL_PROPAGATE_CXX_STD=ON -DBUILD_TESTING=OFF \
  -DCMAKE_INSTALL_PREFIX="$root/install" >/dev/null
ninja -C "$root/build" install >"$root/build.log" || { tail -40 "$root/build.log" >&2; exit 1; }
touch "$root/install/.done"
