#!/usr/bin/env bash
# Runs the sandbox tests under cgroup v2 on machines that boot with something else: on a
# user-mode kernel whose root is this machine's, read-only. Needs root and the packages
# user-mode-linux, kmod and e2fsprogs; takes about ten minutes. Argument: tests to run.
set -euo pipefail
cd "$(dirname "$0")/.."
run=${1:-'^(TestSuite|TestWorkerKilled|TestSandboxDiesWithWorker|TestFailedStartLeavesNothing|TestLayersAreNeeded)$'}
kernel=$(command -v linux.uml) || { echo "no linux.uml: install user-mode-linux" >&2; exit 1; }
overlay=$(find /usr/lib/uml/modules -name overlay.ko | head -1)
insmod=$(PATH=$PATH:/usr/sbin:/sbin command -v insmod) || { echo "no insmod: install kmod" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

go test -c -o "$dir/oci.test" ./internal/sandbox/oci
CGO_ENABLED=0 go build -o "$dir/guest" ./cmd/daybreak-guest
CGO_ENABLED=0 go build -o "$dir/probe" ./internal/sandbox/sandboxtest/testdata/probe
cp "${DAYBREAK_RUNC:-.tools/bin/runc}" "$dir/runc"
truncate -s 1G "$dir/disk"
PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F "$dir/disk"

cat >"$dir/init" <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin CI=true HOME=/run TMPDIR=/tmp
mount -t proc proc /proc
mount -t tmpfs run /run
mountpoint -q /dev || mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup || { mount -t sysfs sys /sys; mount -t cgroup2 cgroup /sys/fs/cgroup; }
$insmod $overlay
ip link set lo up
mkdir /run/t
cp $dir/{oci.test,guest,probe,runc} /run/t
mount -t ext4 /dev/ubda /tmp
cd /run/t
export DAYBREAK_TEST_GUEST=/run/t/guest DAYBREAK_TEST_PROBE=/run/t/probe DAYBREAK_RUNC=/run/t/runc
echo "kernel \$(uname -r), controllers \$(cat /sys/fs/cgroup/cgroup.controllers)"
# This kernel has no IPv6, which one test wants to be allowed.
./oci.test -test.v -test.timeout 30m -test.run '$run' -test.skip TestSuite/SocketFamilies && echo "passed on cgroup v2"
echo o >/proc/sysrq-trigger
sleep 10
INIT
chmod 755 "$dir/init"
"$kernel" mem=1500M root=/dev/root rootfstype=hostfs rootflags=/ ro quiet "ubda=$dir/disk" con=null con0=fd:0,fd:1 "init=$dir/init" </dev/null 2>&1 |
  tee "$dir/log" | grep -Ev "^(=== |SELinux|mmapper)"
grep -q '^passed on cgroup v2' "$dir/log"
