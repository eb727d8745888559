#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the stand-in nvidia-cuda-mps-control and its clients. The parts about other users
# need root and are left out without it.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
export FAKEGPU_DIR="$work" FAKEGPU_DEV="$work/dev" LD_LIBRARY_PATH="$here/build"
export CUDA_MPS_PIPE_DIRECTORY="$work/pipe" CUDA_MPS_LOG_DIRECTORY="$work/log"
client="$here/build/cudaclient" mps="$here/build/nvidia-cuda-mps-control"
passed=0 failed=0
tell() { echo "$*" | "$mps"; }
trap 'tell quit -t 0 >/dev/null 2>&1; rm -rf "$work"' EXIT

ok() { passed=$((passed + 1)); echo "ok $1"; }
not_ok() { failed=$((failed + 1)); echo "FAILED $1"; }
check() {
	name=$1 pattern=$2; shift 2
	if "$@" 2>&1 | grep -q -- "$pattern"; then ok "$name"; else not_ok "$name"; "$@" 2>&1 | head -5; fi
}
# eventually NAME COMMAND...: the command succeeds within ten seconds.
eventually() {
	name=$1; shift; n=0
	until "$@" >/dev/null 2>&1; do
		n=$((n + 1)); [ $n -lt 200 ] || { not_ok "$name"; return; }
		sleep 0.05
	done
	ok "$name"
}
holds() { grep -q -- "$1" "$2"; }
topology() {
	cat > "$work/topology" <<TOPOLOGY
fakegpu 1
driver 580.95.05 cuda $1
gpu model="A100" memory=8192MiB cc=$2 pci=0000:0f:00.0 sms=108 uuid=GPU-11111111-2222-3333-4444-555555555555
gpu model="A100" memory=8192MiB cc=$2 pci=0000:07:00.0 sms=108
TOPOLOGY
}
export CUDA_VISIBLE_DEVICES=0
topology 13.0 8.0
mkdir "$work/dev"; ln -s /dev/null "$work/dev/nvidia0"; ln -s /dev/null "$work/dev/nvidia1"
chmod 755 "$work"; chmod 777 "$work/dev"

check "without a daemon commands are refused" "Cannot find MPS control daemon process" tell get_server_list
check "without a daemon a program runs without MPS" "sms=108" "$client" info
check "a driver without static partitioning refuses it" "Invalid option" "$mps" -d -S
"$mps" -d || not_ok "the daemon starts"
check "a second daemon is refused" "already running" "$mps" -d
check "its PID is in the pipe directory" "nvidia-cuda-mps" cat "/proc/$(cat "$work/pipe/nvidia-cuda-mps-control.pid")/comm"
check "an unknown command is refused" "Unknown command" tell frobnicate
check "a percentage is remembered" "^50.0" tell set_default_active_thread_percentage 50
check "one above 100 is refused" "Invalid" tell set_default_active_thread_percentage 101
check "a memory limit without a unit is refused" "Invalid memory limit" tell set_default_device_pinned_mem_limit 0 1024
check "a device it has not got is refused" "Invalid device" tell set_default_device_pinned_mem_limit 1 1G
tell set_default_device_pinned_mem_limit 0 2048M
check "a memory limit is shown in whole GiB" "^2G" tell get_default_device_pinned_mem_limit 0
tell set_default_device_pinned_mem_limit GPU-11111111-2222-3333-4444-555555555555 1G
check "a limit by UUID has no effect" "^2G" tell get_default_device_pinned_mem_limit 0

unset CUDA_VISIBLE_DEVICES
check "a client sees only the daemon's devices" "devices=1" "$client" info
check "a client has the default share" "sms=54" "$client" info
check "a client's own share may be lower" "sms=32" env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 "$client" info
check "a client's own share may not be higher" "sms=54" env CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=80 "$client" info
check "the default limit holds" "OUT_OF_MEMORY" "$client" alloc 2049
check "what is free is what the limit leaves" "meminfo_free=2147483648 meminfo_total=8589934592" "$client" info
check "a client's own limit may be lower" "OUT_OF_MEMORY" env CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M "$client" alloc 1000 alloc 30
check "a client's own limit may not be higher" "OUT_OF_MEMORY" env CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=4G "$client" alloc 2049
check "the limit is per process" "worst=0" env CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1024M "$client" fork 3 alloc 1000 expect ok

"$client" alloc 1 forever > "$work/holder" & holder=$!
eventually "a client stays" holds forever "$work/holder"
check "it is listed with its server" "$holder" tell get_client_list "$(tell get_server_list)"
check "a server with clients is not shut down" "has clients" tell shutdown_server "$(tell get_server_list)"
kill -9 $holder; wait $holder 2>/dev/null
eventually "a client that dies is not listed" sh -c "! echo ps | '$mps' | grep -q '$holder'"

(for i in $(seq 48); do "$client" alloc 1 forever & done; wait) > "$work/crowd" & crowd=$!
full() { [ "$(grep -c forever "$work/crowd")" = 48 ]; }
eventually "48 clients are served" full
check "the next one is refused" "MPS_MAX_CLIENTS_REACHED" "$client" alloc 1
tell quit -t 0
eventually "quit ends the daemon" sh -c "! echo get_server_list | '$mps'"
for p in $(sed -n 's/.*pid=//p' "$work/crowd"); do kill -9 "$p"; done; wait $crowd 2>/dev/null

"$mps" -d
"$client" alloc 1 hold 0 sleep 1 alloc 1 > "$work/cut" & cut=$!
eventually "a client is there" holds sleep "$work/cut"
kill -9 "$(cat "$work/pipe/nvidia-cuda-mps-control.pid")"
wait $cut
check "when the daemon is killed its clients fail" "MPS_RPC_FAILURE" cat "$work/cut"
"$mps" -d && ok "a daemon starts where one was killed" || not_ok "a daemon starts where one was killed"

if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then
	chmod 777 "$work" "$work/state"
	as() { user=$1; shift; exec setpriv --reuid "$user" --clear-groups "$@"; }
	as 1000 "$client" alloc 1 forever > "$work/first" & first=$!
	eventually "a client of one user is served" holds forever "$work/first"
	as 2000 "$client" alloc 1 > "$work/second" & second=$!
	eventually "a client of another user waits" holds "waits for the clients of user 1000" "$work/log/control.log"
	[ -s "$work/second" ] && not_ok "it did not get in" || ok "it did not get in"
	kill -9 $first; wait $first 2>/dev/null
	wait $second
	check "it gets in when the first user's clients are gone" "CUDA_SUCCESS" cat "$work/second"
	check "a user cannot command root's daemon" "Permission denied" as 1000 sh -c "echo quit | '$mps'"
	tell quit -t 0
	eventually "the daemon is gone" sh -c "! echo get_server_list | '$mps'"
	"$mps" -d -multiuser-server
	as 1000 "$client" alloc 1 forever > "$work/first" & first=$!
	eventually "one user is served by the shared server" holds forever "$work/first"
	check "and so is another" "CUDA_SUCCESS" as 2000 "$client" alloc 1
	kill -9 $first; wait $first 2>/dev/null
fi
tell quit -t 0

echo 3 > "$work/compute-mode-0"
eventually "the daemon is gone again" sh -c "! echo get_server_list | '$mps'"
CUDA_VISIBLE_DEVICES=0 "$mps" -d
"$client" alloc 1 forever > "$work/inside" & inside=$!
eventually "a client works in an exclusive mode" holds forever "$work/inside"
CUDA_MPS_PIPE_DIRECTORY="$work/nowhere" CUDA_VISIBLE_DEVICES=GPU-11111111-2222-3333-4444-555555555555 \
	check "who goes past the daemon is refused there" "DEVICE_UNAVAILABLE" "$client" alloc 1
kill -9 $inside; wait $inside 2>/dev/null
tell quit -t 0
rm "$work/compute-mode-0"

topology 13.1 8.0
eventually "the daemon is gone once more" sh -c "! echo get_server_list | '$mps'"
CUDA_VISIBLE_DEVICES=0 "$mps" -d -S
u=GPU-11111111-2222-3333-4444-555555555555
check "a client without a partition is refused in that mode" "INVALID_RESOURCE_CONFIGURATION" "$client" alloc 1
id=$(tell sm_partition add $u 9 | sed -n 's/Partition \(.*\) created/\1/p')
check "a client with one has its multiprocessors" "sms=36" env CUDA_MPS_SM_PARTITION="$id" "$client" info
check "the rest is free" "$u - 18 9 72 36" tell lspart
check "more than there is cannot be had" "Failed to create" tell sm_partition add $u 19
check "a partition is removed" "removed" tell sm_partition rm $u "$id"

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
