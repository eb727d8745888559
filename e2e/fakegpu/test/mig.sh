# SPDX-License-Identifier: Apache-2.0
# Partitions as fakegpuctl makes them and CUDA sees them. Part of run.sh.
rm -rf "$work/state"
cat > "$work/topology" <<'TOPOLOGY'
fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=enabled pci=0000:0f:00.0 sms=108
gpu model="NVIDIA A30" memory=24576MiB cc=8.0 numa=0 mig=capable pci=0000:17:00.0 sms=56
gpu model="NVIDIA H200" memory=143771MiB cc=9.0 numa=0 mig=capable pci=0000:27:00.0 sms=132
TOPOLOGY
host="$work/dev"
ln -s /dev/null "$host/nvidia0"

# As in a container: the device of minor $2 and the capability nodes of GI $3 in a new $1.
container() {
	mkdir -p "$1/nvidia-caps"
	ln -s /dev/null "$1/nvidia$2"
	for name in "gpu$2/gi$3/access" "gpu$2/gi$3/ci0/access"; do
		ln -s /dev/null "$1/nvidia-caps/nvidia-cap$(awk -v n="$name" '$1 == n { print $2 }' "$work/mig-minors")"
	done
}
inside() { (export FAKEGPU_DEV="$1"; shift; exec "$@"); }

check "a device in MIG mode without a partition is none of CUDA's" 'CUDA_ERROR_NO_DEVICE' "$client" info
check "an instance is made by hand" 'gi=2 ci=0 profile=3g.40gb start=4 uuid=MIG-' "$ctl" create 0 3g.40gb 4
check "one that overlaps is refused" 'the place is taken' "$ctl" create 0 2g.20gb 4
check "a start that hardware has not got is refused" 'cannot start there' "$ctl" create 0 2g.20gb 5
"$ctl" create 0 1g.10gb 0 > /dev/null
check "the host's CUDA has the first partition as its one device" 'info devices=1' "$client" info
"$client" processes > /dev/null # NVML writes the table of minors
container "$work/one" 0 2
container "$work/other" 0 7
check "show draws the slices" '^  slices |1g.10gb |\.       |.*|3g.40gb                            |$' "$ctl" show
check "a container has its own partition" 'name="NVIDIA A100-SXM4-80GB MIG 3g.40gb" total=42144366592 .*profile=3g.40gb nvml_total=42144366592' inside "$work/one" "$client" info
check "and the other its own" 'total=10200547328 .*profile=1g.10gb' inside "$work/other" "$client" info
uuid=$("$ctl" show | sed -n 's/.*profile=3g.40gb.* uuid=\([^ ]*\) .*/\1/p')
check "by the UUID that was made" "uuid=$uuid" inside "$work/one" "$client" info
check "a UUID in CUDA_VISIBLE_DEVICES selects it" 'info devices=1' env CUDA_VISIBLE_DEVICES="$uuid" FAKEGPU_DEV="$work/one" "$client" info
check "another's does not" 'CUDA_ERROR_NO_DEVICE' env CUDA_VISIBLE_DEVICES="$uuid" FAKEGPU_DEV="$work/other" "$client" info

# Two that keep their partitions busy at the same time; of one device each would have half, however
# often it is tried. A machine that is busy with other work gives neither what it wants.
for _ in 1 2 3 4 5; do
	inside "$work/one" "$client" busy 1 2 > "$work/busy-one" &
	worker=$!
	inside "$work/other" "$client" busy 1 2 > "$work/busy-other"
	wait $worker
	took=$(sed 's/.*fraction=\([0-9.]*\).*/\1/' "$work/busy-one" "$work/busy-other" | tr '\n' ' ')
	if awk "BEGIN { split(\"$took\", f, \" \"); exit !(f[1] + f[2] > 1.2) }"; then break; fi
done
passes "partitions work side by side ($took)" awk "BEGIN { split(\"$took\", f, \" \"); exit !(f[1] + f[2] > 1.2) }"

FAKEGPU_DEV="$work/one" "$client" alloc 40000 forever > "$work/partition-holder" &
holder=$!
until grep -q forever "$work/partition-holder"; do sleep 0.05; done
passes "memory ends where the partition ends" inside "$work/one" "$client" alloc 190 expect ok alloc 4 expect oom
passes "and a neighbour's is its own" inside "$work/other" "$client" alloc 9728 expect ok alloc 2 expect oom
check "show lists the user below its instance" "^    process pid=$holder own_pid=$holder .*used_mib=40000" "$ctl" show
check "an instance in use is not destroyed" 'in use' "$ctl" destroy 0 2
check "a device in use is not reset" 'in use' "$ctl" reset 0
check "a reboot kills its users" 'killed=1' "$ctl" reboot
wait $holder 2> /dev/null
check "and loses the instances, the mode stays on Ampere" 'mig=on' "$ctl" show
passes "so that the place is free" "$ctl" create 0 7g.80gb
check "a new one has another UUID" 'NO_DEVICE' env CUDA_VISIBLE_DEVICES="$uuid" "$client" info

passes "Hopper changes its mode at once" sh -c '"$0" mig 2 on | grep -q activation=done' "$ctl"
"$ctl" watch 2 > "$work/watcher" &
watcher=$!
until grep -q pid= "$work/watcher"; do sleep 0.05; done
check "not while somebody has it in an event set" 'in use' "$ctl" mig 2 off
kill -9 $watcher
wait $watcher 2> /dev/null
passes "and again when that one was killed" sh -c '"$0" mig 2 off | grep -q activation=done && "$0" mig 2 on | grep -q activation=done' "$ctl"
"$ctl" reboot > /dev/null
check "and loses it at a reboot" 'model="NVIDIA H200".*mig=off' "$ctl" show
check "Ampere wants a reset" 'reset required' "$ctl" mig 1 on
check "until which the mode is pending" 'mig=off-until-reset' "$ctl" show
"$ctl" reset 1 > /dev/null
check "and then in force" 'model="NVIDIA A30".*mig=on' "$ctl" show
"$ctl" fail nvmlInitWithFlags always 999 > /dev/null
"$ctl" fail nvmlDeviceGetMemoryInfo always 15 > /dev/null
"$ctl" create 0 1g.10gb 6 > /dev/null
check "a call fails when it is told to" 'nvml_total=none' "$client" info
"$ctl" mend > /dev/null
check "and works when it is not" 'nvml_total=1' "$client" info
