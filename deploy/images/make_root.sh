#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make_root.sh IMAGE PROGRAM ROOT [CRATES]: the root file system of an image, in a stage of the
# Dockerfile: the program, the libraries that it loads with their licences, and what tells scanners
# which packages and wheels these are from. CRATES lists the Rust crates that the program links.
set -euo pipefail
. "$(dirname "$0")/target.sh"
image=$1 program=$2 root=$3 crates=${4:-}
name=$(basename "$program")
libraries_of_wheels=usr/lib/$triple
mkdir -p "$root"/{etc,tmp,usr/bin,$libraries_of_wheels,usr/lib64,usr/share/continuo,var/lib/dpkg/status.d}
chmod 1777 "$root/tmp"
ln -s usr/bin "$root/bin"
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"
install -s --strip-program="$triple-strip" -m 755 "$program" "$root/usr/bin/"

packages=() wheels=()
# Libraries that the program loads, and those that they open by name: cuBLASLt compiles some kernels.
# The loader has the name that programs have for it, such as /lib64/ld-linux-x86-64.so.2.
loader=$("$triple-readelf" -p .interp "$program" | grep -o '/.*')
libraries=$($emulator "$loader" --list "$program" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}')
if [[ $libraries == *libcublasLt* ]]; then
  folder=$(dirname "$(grep -m1 libcublasLt <<<"$libraries")")
  libraries+=$'\n'$(ls "$folder"/libnvrtc{,-builtins}.so.1[23]*)
fi
while read -r library; do
  file=$(realpath "$library")
  if [[ $file =~ ^"$PWD"/build/cuda-toolkit[^/]* ]]; then  # of a wheel: beside Debian's, where the loader looks
    toolkit=${BASH_REMATCH[0]}
    cp --preserve=mode,timestamps "$file" "$root/$libraries_of_wheels/"
    wheels+=("$(dirname "$(grep -lF "${file#"$toolkit/"}," "$toolkit"/*.dist-info/RECORD)")")
    continue
  fi
  mkdir -p "$root$(dirname "$file")"
  cp --preserve=mode,timestamps "$file" "$root$file"
  # The name that the loader looks for, beside the file that it is.
  link=$(dirname "$file")/$(basename "$library")
  [ "$link" = "$file" ] || ln -sf "$(basename "$file")" "$root$link"
  owner=$(dpkg -S "$file")
  packages+=("${owner%%: *}")
done <<<"$libraries"
ln -sfr "$root$(realpath "$loader")" "$root/usr$loader"

mapfile -t packages < <(printf '%s\n' "${packages[@]}" base-files | sort -u)
mapfile -t wheels < <(printf '%s\n' ${wheels[@]+"${wheels[@]}"} | sort -u | grep .)
for package in "${packages[@]}"; do
  bare=${package%:*}
  dpkg-query -s "$package" >"$root/var/lib/dpkg/status.d/$bare"
  mkdir -p "$root/usr/share/doc/$bare"
  cp -L "/usr/share/doc/$bare/copyright" "$root/usr/share/doc/$bare/"
done
for wheel in "${wheels[@]}"; do
  mkdir -p "$root/usr/share/doc/$(basename "$wheel" .dist-info)"
  find "$wheel" -iname 'license*' -type f -exec cp {} "$root/usr/share/doc/$(basename "$wheel" .dist-info)/copyright" \;
done
cp LICENSE THIRD_PARTY_NOTICES.md "$root/usr/share/continuo/"
cp -L /etc/os-release /etc/debian_version "$root/etc/"
echo 'nonroot:x:65532:65532:nonroot:/tmp:/sbin/nologin' >"$root/etc/passwd"
echo 'nonroot:x:65532:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"

# As it runs in there: every library is found.
[ "$cross" = 0 ] || install -m 755 "$emulator" "$root/emulator"
version=$(chroot "$root" ${emulator:+/emulator} "/usr/bin/$name" --version)
rm -f "$root/emulator"
echo "$version"
python3 deploy/images/sbom.py --image="$image" --program="$program" --version="${version##* }" \
  --architecture="$architecture" ${crates:+--crates="$crates"} "${wheels[@]/#/--wheel=}" \
  --output="$root/usr/share/continuo/sbom.cdx.json" "${packages[@]}"
