# SPDX-License-Identifier: Apache-2.0
# vGPUs as CUDA and fakegpuctl see them. Part of run.sh; NVML's side is tested in deviceplugin/driver.
rm -rf "$work/state" "$work/dev"/*
cat > "$work/topology" <<'TOPOLOGY'
fakegpu 1
gpu model="NVIDIA L4-12Q" memory=64MiB virtual=vgpu licence=none
gpu model="NVIDIA L4" memory=64MiB virtual=passthrough
TOPOLOGY
ln -s /dev/null "$work/dev/nvidia0"
passes "a vGPU computes and has its own memory" "$client" alloc 64 expect ok alloc 1 expect oom
check "a licence is given" 'licence index=0 .* is=ok' "$ctl" licence 0 ok
check "and one that ends" 'is=1700000000' "$ctl" licence 0 1700000000
check "a licence that nobody gives is refused" 'bad licence soon' "$ctl" licence 0 soon
check "a device of the machine itself has none" 'bad licence ok: .* virtual=vgpu' "$ctl" licence 1 ok
for wrong in 'licence=none' 'virtual=vgpu mig=capable' 'virtual=vgpu licence=-1' 'virtual=maybe'; do
	printf 'fakegpu 1\ngpu model="A" memory=64MiB %s\n' "$wrong" > "$work/topology"
	check "$wrong is refused" 'topology:2: ' "$ctl" show
done
