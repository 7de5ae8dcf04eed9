# SPDX-License-Identifier: Apache-2.0
# Sourced by scripts that build Go modules: $go is a Go that is new enough for all of them. A Go at hand that is too
# old, as Debian 12's, fetches a newer one into its module cache, as the module that it is.
toolchain=go1.26.8
export GOTOOLCHAIN=local
go=go
if ! go version | awk -v wanted="$toolchain" '{
  sub("go", "", wanted); split(wanted, w, "."); sub("go", "", $3); split($3, v, ".")
  for (i = 1; i <= 3; i++) if (v[i] + 0 != w[i] + 0) exit v[i] + 0 < w[i] + 0
}'; then
  module=golang.org/toolchain@v0.0.1-$toolchain.linux-$(go env GOARCH)
  echo "setup: $toolchain, as $(go version | cut -d' ' -f3) is too old"
  folder=$(mktemp -d)
  printf 'module local/toolchain\n' >"$folder/go.mod"
  said=$(cd "$folder" && GOFLAGS=-modcacherw go mod download -json "$module") || { echo "$said" >&2; exit 1; }
  rm -r "$folder"
  folder=$(printf '%s\n' "$said" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
  chmod +x "$folder"/bin/* "$folder"/pkg/tool/*/*
  go=$folder/bin/go
fi
