# SPDX-License-Identifier: Apache-2.0
# Copies a model from $SOURCE, a remote of rclone, to $TARGET over $STREAMS connections, up to four of them for
# one large file. Runs in busybox' sh with rclone. One pod at a time copies what several share: the others wait at a lock, which the kernel or
# the file server opens when its pod is gone, and copy what is missing then. rclone compares sizes and
# times of files that are there, digests of those that it has copied, and gives a file its name when it is
# whole; of one that was cut off it begins anew.
# No two dollar signs in a row: Kubernetes makes one of them in an argument.
set -eu
mkdir -p "$TARGET"
exec 9>"$TARGET.lock"
if flock -n 9; then
  locked=1
else
  waiting=
  trap '[ -z "$waiting" ] || kill "$waiting"; exit 143' TERM
  echo "waiting for another pod that copies $SOURCE"
  flock 9 & waiting=$!
  wait "$waiting" && locked=1 || { locked=''; echo "the volume has no locks: each pod copies for itself" >&2; }
fi
# What pods left that have ended.
[ -z "$locked" ] || find "$TARGET" -type f -name '*.partial' -exec rm -f {} +
parts=4 # of a file
while [ $((STREAMS % parts)) -ne 0 ]; do parts=$((parts - 1)); done
exec rclone copy --transfers="$((STREAMS / parts))" --multi-thread-streams="$parts" "$SOURCE" "$TARGET"
