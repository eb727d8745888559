// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"deviceshare/e2e/report"
)

const (
	mib = int64(1) << 20
	gib = mib << 10
)

// experiments is the part of research plan 5.2 that memory needs, in its order.
func experiments() []experiment {
	return []experiment{
		{"no limits: identity", "same answers as the bare driver", identity},
		{"8 GiB limit: what is seen", "cuDeviceTotalMem, cuMemGetInfo, NVML all say 8 GiB", sees},
		{"8 GiB limit: steps of 64 MiB", "stops at the limit, never above, at most 1 GiB of overhead below", steps},
		{"ways in: link, dlsym, cuGetProcAddress", "each is refused beyond the limit", ways},
		{"kinds: async, managed, pitch", "each is refused beyond the limit", kinds},
		{"environment against file", "the file wins", override},
		{"two processes, one limit", "exactly one of two gets 5 of 8 GiB", together},
		{"SIGKILL gives back", "the full limit again within 100 ms of the death", killed},
		{"nvidia-smi", "memory.total is the limit", smi},
		{"PyTorch", "torch.OutOfMemoryError, then goes on; mem_get_info total is the limit", torch},
		{"a whole device", "the library is not needed: bare client allocates 90 %", whole},
		{"device plugin: inventory by NVML", "the device's UUID, no more memory than programs can have, nodes and files by nvcdi", inventory},
	}
}

func identity(b *bench) (string, error) {
	bare, err := b.bare("info")
	if err != nil {
		return "", err
	}
	ours, err := b.with("info")
	if err != nil {
		return ours, err
	}
	for _, key := range []string{"uuid", "total", "meminfo_total", "nvml_total"} {
		if x, y := report.Field(bare, "info index=0", key), report.Field(ours, "info index=0", key); x != y {
			return "", fmt.Errorf("%s is %s bare and %s with the library", key, x, y)
		}
	}
	return "equal", nil
}

func sees(b *bench) (string, error) {
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	out, err := b.with("info")
	if err != nil {
		return out, err
	}
	for _, key := range []string{"total", "meminfo_total", "nvml_total"} {
		if got := report.Field(out, "info index=0", key); got != fmt.Sprint(8*gib) {
			return "", fmt.Errorf("%s is %s", key, got)
		}
	}
	return "8 GiB three times, free " + report.Field(out, "info index=0", "meminfo_free"), nil
}

func steps(b *bench) (string, error) {
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	var words []string
	for range 140 {
		words = append(words, "alloc", "64")
	}
	out, err := b.with(words...)
	if err != nil && !strings.Contains(out, "OUT_OF_MEMORY") {
		return out, err
	}
	got := 64 * int64(strings.Count(out, "result=CUDA_SUCCESS"))
	switch {
	case got > 8192:
		return "", fmt.Errorf("%d MiB were given beyond the limit of 8192", got)
	case got < 7168:
		return "", fmt.Errorf("only %d of 8192 MiB were given", got)
	}
	return fmt.Sprintf("%d of 8192 MiB, then CUDA_ERROR_OUT_OF_MEMORY", got), nil
}

// refused expects 5 GiB to be given and 4 more refused, by the given way.
func refused(b *bench, before []string, alloc string) error {
	if err := b.limit(8*gib, 0); err != nil {
		return err
	}
	out, err := b.with(append(before, alloc, "5120", "expect", "ok", alloc, "4096", "expect", "oom")...)
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.ReplaceAll(out, "\n", "; "))
	}
	return nil
}

func ways(b *bench) (string, error) {
	for _, way := range []string{"link", "dlsym", "getproc"} {
		if err := refused(b, []string{"via", way}, "alloc"); err != nil {
			return "", fmt.Errorf("%s: %w", way, err)
		}
		b.clean()
	}
	return "3 of 3", nil
}

func kinds(b *bench) (string, error) {
	for _, kind := range []string{"alloc-async", "alloc-managed", "alloc-pitch"} {
		if err := refused(b, nil, kind); err != nil {
			return "", fmt.Errorf("%s: %w", kind, err)
		}
		b.clean()
	}
	return "3 of 3", nil
}

func override(b *bench) (string, error) {
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	out, err := run([]string{"LD_PRELOAD=" + b.library, "CUDA_DEVICE_MEMORY_LIMIT=60g", "CUDA_DEVICE_MEMORY_LIMIT_0=60g"},
		b.client, "alloc", "9000", "expect", "oom")
	return "refused", errors.Join(err, onlyIf(err != nil, out))
}

func together(b *bench) (string, error) {
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	out, _ := b.with("fork", "2", "alloc", "5120", "hold", "2")
	ok, oom := strings.Count(out, "result=CUDA_SUCCESS"), strings.Count(out, "OUT_OF_MEMORY\n")
	if ok != 1 || oom != 1 {
		return "", fmt.Errorf("%d given, %d refused: %s", ok, oom, strings.ReplaceAll(out, "\n", "; "))
	}
	return "1 given, 1 refused", nil
}

// killed takes the limit in one process, kills it, and takes it in another.
func killed(b *bench) (string, error) {
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	holder := exec.Command(b.client, "alloc", "7000", "forever")
	holder.Env = append(os.Environ(), "LD_PRELOAD="+b.library)
	out, err := holder.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := holder.Start(); err != nil {
		return "", err
	}
	text := make([]byte, 0, 4096)
	for !strings.Contains(string(text), "forever") {
		chunk := make([]byte, 512)
		n, err := out.Read(chunk)
		if err != nil {
			return "", fmt.Errorf("the holder ended early: %s", text)
		}
		text = append(text, chunk[:n]...)
	}
	if err := holder.Process.Kill(); err != nil {
		return "", err
	}
	_ = holder.Wait()
	time.Sleep(100 * time.Millisecond)
	again, err := b.with("alloc", "7000", "expect", "ok")
	return "7000 MiB again", errors.Join(err, onlyIf(err != nil, again))
}

func smi(b *bench) (string, error) {
	path, err := exec.LookPath("nvidia-smi")
	if err != nil {
		return "", skip("no nvidia-smi")
	}
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	out, err := run([]string{"LD_PRELOAD=" + b.library}, path, "--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits")
	if err != nil {
		return out, err
	}
	if !strings.HasPrefix(strings.TrimSpace(out), "8192,") {
		return "", fmt.Errorf("nvidia-smi says %q", out)
	}
	return strings.TrimSpace(out) + " MiB", nil
}

// torchProgram fills the device to its end, catches the error PyTorch promises
// for that, and goes on.
const torchProgram = `
import torch
free, total = torch.cuda.mem_get_info()
blocks, caught = [], ""
try:
    for _ in range(1000):
        blocks.append(torch.empty(256 << 20, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError as e:
    caught = type(e).__name__
n = len(blocks)
del blocks
torch.cuda.empty_cache()
x = torch.randn(2048, 2048, device="cuda")
y = float((x @ x).abs().sum())
print("total=%d blocks=%d caught=%s again=%s" % (total, n, caught, y > 0))
`

func torch(b *bench) (string, error) {
	python, err := exec.LookPath("python3")
	if err != nil {
		return "", skip("no python3")
	}
	if out, err := run(nil, python, "-c", "import torch"); err != nil {
		return "", skip("no PyTorch: " + strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]))
	}
	if err := b.limit(8*gib, 0); err != nil {
		return "", err
	}
	out, err := run([]string{"LD_PRELOAD=" + b.library}, python, "-c", torchProgram)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, strings.ReplaceAll(out, "\n", "; "))
	}
	last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]
	if !strings.Contains(last, fmt.Sprintf("total=%d ", 8*gib)) || !strings.Contains(last, "caught=OutOfMemoryError again=True") {
		return "", fmt.Errorf("PyTorch says %q", out)
	}
	return strings.TrimSpace(last), nil
}

func whole(b *bench) (string, error) {
	out, err := b.bare("alloc", fmt.Sprint(b.total*9/10/mib), "expect", "ok", "free")
	return fmt.Sprintf("%d MiB", b.total*9/10/mib), errors.Join(err, onlyIf(err != nil, out))
}

func inventory(b *bench) (string, error) {
	if _, err := os.Stat(b.plugin); err != nil {
		return "", skip("no deviceshare-device-plugin in the directory")
	}
	out, err := run(nil, b.plugin, "inventory")
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	var got struct {
		Inventory struct {
			Devices []struct {
				UUID   string
				Memory int64
			}
		}
		DriverEdits struct {
			DeviceNodes []struct{ Path string }
			Mounts      []struct{ ContainerPath string }
		}
	}
	if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &got); err != nil {
		return "", fmt.Errorf("decode the inventory: %w", err)
	}
	if len(got.Inventory.Devices) == 0 || got.Inventory.Devices[0].UUID != b.uuid {
		return "", fmt.Errorf("device %s is not in the inventory: %s", b.uuid, out)
	}
	if d := got.Inventory.Devices[0]; d.Memory > b.total {
		return "", fmt.Errorf("%d bytes are offered, programs can have %d", d.Memory, b.total)
	}
	if len(got.DriverEdits.DeviceNodes) == 0 || len(got.DriverEdits.Mounts) == 0 {
		return "", fmt.Errorf("a container would get %d device nodes and %d files of the driver", len(got.DriverEdits.DeviceNodes), len(got.DriverEdits.Mounts))
	}
	return fmt.Sprintf("%d of %d bytes offered, %d device nodes, %d driver files", got.Inventory.Devices[0].Memory, b.total,
		len(got.DriverEdits.DeviceNodes), len(got.DriverEdits.Mounts)), nil
}

// onlyIf makes an error of a text.
func onlyIf(wrong bool, text string) error {
	if !wrong {
		return nil
	}
	return errors.New(strings.ReplaceAll(text, "\n", "; "))
}
