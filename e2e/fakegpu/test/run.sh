#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the fake GPU through its own client. Needs no privilege: a link to /dev/null is
# a character device, too.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export FAKEGPU_DIR="$work" FAKEGPU_DEV="$work/dev" LD_LIBRARY_PATH="$here/build"
client="$here/build/cudaclient" ctl="$here/build/fakegpuctl"
passed=0 failed=0

ok() { passed=$((passed + 1)); echo "ok $1"; }
not_ok() { failed=$((failed + 1)); echo "FAILED $1"; }
# check NAME PATTERN COMMAND...: the command's output has a line that matches.
check() {
	name=$1 pattern=$2; shift 2
	if "$@" 2>&1 | grep -q -- "$pattern"; then ok "$name"; else not_ok "$name"; fi
}
# passes NAME COMMAND...: the command exits 0.
passes() { name=$1; shift; if "$@" >/dev/null 2>&1; then ok "$name"; else not_ok "$name"; fi; }

cat > "$work/topology" <<'TOPOLOGY'
fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=1024MiB cc=8.0 numa=0 mig=capable pci=0000:0f:00.0 sms=108
gpu model="Second" memory=64MiB pci=0000:07:00.0 uuid=GPU-11111111-2222-3333-4444-555555555555
TOPOLOGY
mkdir "$work/dev"
ln -s /dev/null "$work/dev/nvidia0"
ln -s /dev/null "$work/dev/nvidia1"

check "CUDA orders devices by PCI address" 'info index=0 uuid=GPU-11111111' "$client" info
check "an index in CUDA_VISIBLE_DEVICES selects" 'info index=0 uuid=GPU-ce4768fe' env CUDA_VISIBLE_DEVICES=1 "$client" info
check "a UUID prefix in CUDA_VISIBLE_DEVICES selects" 'info devices=1' env CUDA_VISIBLE_DEVICES=GPU-1111 "$client" info
check "entries after an invalid one do not count" 'info devices=1' env CUDA_VISIBLE_DEVICES=0,7,1 "$client" info
for way in link dlsym getproc; do
	passes "memory is exact to the page by $way" "$client" via $way alloc 64 expect ok alloc 1 expect oom free alloc 64 expect ok
done
passes "kinds of memory share one device, pools by 32 MiB" "$client" alloc 8 alloc-async 16 alloc-managed 8 alloc-pitch 16 expect ok alloc 1 expect oom
# seconds= of 20 kernels; a busy machine may add to it
took=$("$client" launch 20 | sed 's/.*seconds=\([0-9.]*\).*/\1/')
passes "20 kernels of 1 ms take 20 ms or more ($took s)" awk "BEGIN { exit !($took >= 0.02) }"
took=$("$client" busy 0.3 2 | sed 's/.*fraction=\([0-9.]*\).*/\1/')
passes "kernels back to back keep the device busy ($took)" awk "BEGIN { exit !($took > 0.5 && $took <= 1.01) }"
passes "an injected failure arrives" env FAKEGPU_FAIL=cuMemAlloc:2:2 "$client" alloc 1 expect ok alloc 1 expect oom alloc 1 expect ok

"$client" alloc 64 forever > "$work/holder" &
holder=$!
until grep -q forever "$work/holder"; do sleep 0.05; done
passes "another process's memory counts" "$client" alloc 1 expect oom
check "show lists the process" "own_pid=$holder name=cudaclient used_mib=64" "$ctl" show
check "NVML lists the process by its PID" "pid=$holder used_mib=64" "$client" processes
kill -9 $holder
wait $holder 2>/dev/null
check "the peak remembers what is gone, after a kill too" 'peak index=1 .* bytes=67108864 used=0' "$ctl" peak 1
"$ctl" peak 1 reset > /dev/null
check "a reset peak starts from what is used" 'peak index=1 .* bytes=0 used=0' "$ctl" peak 1
passes "a killed process's memory is back" "$client" alloc 64 expect ok
check "a child of a CUDA process has no CUDA" NOT_INITIALIZED "$client" alloc 1 fork 1 alloc 1
passes "children that start before CUDA have it" "$client" fork 2 alloc 16 expect ok

passes "an hour of kernels is short on a clock of its own" env FAKEGPU_CLOCK=0/1 timeout 10 "$client" launch 3600000
check "a place that the clock has not is refused" 'want <place>/<count>' env FAKEGPU_CLOCK=2/2 "$client" launch 1

"$ctl" lose 1 > /dev/null
passes "a lost device does not allocate" sh -c '"$0" alloc 1 | grep -q UNKNOWN' "$client"
"$ctl" restore 1 > /dev/null
passes "a restored device does" "$client" alloc 1 expect ok
check "a missing device is refused" 'no device 9' "$ctl" xid 9 31
echo 'gpu model=' >> "$work/topology"
check "a bad topology line is named" 'topology:5: bad model=' "$ctl" show
rm "$work/dev/nvidia0" "$work/dev/nvidia1"
sed -i '$d' "$work/topology"
check "without device nodes there is no device" 'CUDA_ERROR_NO_DEVICE' "$client" info

. "$here/test/mig.sh"
. "$here/test/virtual.sh"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
