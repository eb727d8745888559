// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

func partitionedHost(t *testing.T) *fakeHost {
	h := newHost(t)
	h.partitions = true
	return h
}

// wanting is a claim with this much compute.
func wanting(cores sharing.Percent, c modes.Claim) modes.Claim {
	c.Devices[0].Share.Cores = cores
	return c
}

func TestAPreparerWithPartitionsPassesTheSuite(t *testing.T) {
	modestest.Preparer(t, func(t *testing.T) modestest.Host { return partitionedHost(t) }, func(o sharing.Owner, container string) modes.Claim {
		return wanting(10, asks(o, container))
	})
}

func TestAContainerGetsAsManyChunksAsItsShareOfTheDevicePaysFor(t *testing.T) {
	for cores, want := range map[sharing.Percent]string{4: "map[0:1]", 30: "map[0:8]", 50: "map[0:13]", 100: "map[0:27]"} {
		h := partitionedHost(t)
		in := inject(t, h, wanting(cores, asks("uid", "main")))
		if got := fmt.Sprint(h.daemonOf("GPU-a").parts); got != want {
			t.Errorf("%d%%: the daemon gave %s, want %s", cores, got, want)
		}
		env := lines(in.Env)
		if !slices.Contains(env, "CUDA_MPS_SM_PARTITION=GPU-a/p0") || strings.Contains(fmt.Sprint(env), "THREAD_PERCENTAGE") {
			t.Errorf("the environment is %q", env)
		}
	}
}

// The scheduler adds up percents. Whatever shares it puts on a device, each that pays for a chunk
// gets what it pays for: small ones, which pay for none, are refused and take nothing from it.
func TestSharesThatFitADeviceGetTheirChunks(t *testing.T) {
	refused := 0
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 20))
		h, offered := partitionedHost(t), []sharing.Percent{100, 100, 50, 150}[r.IntN(4)]
		held, left := map[sharing.Owner]sharing.Percent{}, offered
		for n := range 30 {
			if owners := slices.Sorted(maps.Keys(held)); len(owners) == 10 || len(owners) > 0 && (left == 0 || r.IntN(4) == 0) {
				gone := owners[r.IntN(len(owners))]
				if err := h.fresh().Unprepare(context.Background(), gone); err != nil {
					t.Fatal(err)
				}
				left += held[gone]
				delete(held, gone)
				continue
			}
			cores := 1 + sharing.Percent(r.IntN([]int{3, int(left)}[r.IntN(2)]))
			if cores = min(cores, left, 99); len(held) == 0 && offered >= 100 && r.IntN(4) == 0 {
				cores = 100
			}
			o := sharing.Owner(fmt.Sprint("uid-", n))
			c := wanting(cores, asks(o, "main"))
			c.Devices[0].Device.Cores = offered
			before := chunksGiven(h)
			_, err := h.fresh().Prepare(context.Background(), c)
			held[o], left = cores, left-cores
			want := 27 * int(cores) / max(100, int(offered))
			if cores == 100 {
				want, left = 27, 0
				held[o] = offered
			}
			if got := chunksGiven(h) - before; got != want || (err == nil) != (want > 0) {
				t.Fatalf("seed %d: %d%% of %d%% get %d chunks, want %d: %v", seed, cores, offered, got, want, err)
			}
			if want == 0 {
				refused++
				if !strings.Contains(err.Error(), "set vgpu-cores to ") {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
	}
	if refused < 50 {
		t.Errorf("only %d small shares were refused: this shows little", refused)
	}
}

// Nine shares of one percent and one of 91 are all of a device, in the ten slots that it has.
func TestSmallSharesTakeNothingFromALargeOne(t *testing.T) {
	h := partitionedHost(t)
	for i := range 9 {
		_, _ = h.fresh().Prepare(context.Background(), wanting(1, asks(sharing.Owner(fmt.Sprint("small-", i)), "main")))
	}
	inject(t, h, wanting(91, asks("large", "main")))
	if got := chunksGiven(h); got != 24 {
		t.Errorf("the daemon gave %d chunks, want 24 of 27", got)
	}
}

// chunksGiven adds up the partitions of the first device.
func chunksGiven(h *fakeHost) (sum int) {
	if d := h.daemonOf("GPU-a"); d != nil {
		for _, n := range d.parts {
			sum += n
		}
	}
	return sum
}

func TestAWholeDeviceIsAllChunks(t *testing.T) {
	h, c := partitionedHost(t), asks("uid", "main")
	c.Devices[0].Share.Whole, c.Devices[0].Share.Cores = true, 0
	inject(t, h, c)
	if got := fmt.Sprint(h.daemonOf("GPU-a").parts); got != "map[0:27]" {
		t.Errorf("the daemon gave %s", got)
	}
}

func TestPartitionsComeBackWithTheirPods(t *testing.T) {
	h := partitionedHost(t)
	inject(t, h, wanting(50, asks("a", "main")))
	inject(t, h, wanting(50, asks("b", "main")))
	if err := h.fresh().Unprepare(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	inject(t, h, wanting(50, asks("c", "main")))
	if got := fmt.Sprint(h.daemonOf("GPU-a").parts); got != "map[0:13 1:13]" {
		t.Errorf("the daemon gave %s", got)
	}
}

func TestAfterItsDaemonDiedAContainerGetsAPartitionAgain(t *testing.T) {
	h := partitionedHost(t)
	inject(t, h, wanting(30, asks("a", "main")))
	h.kill("GPU-a")
	inject(t, h, wanting(30, asks("a", "main")))
	if got := fmt.Sprint(h.daemonOf("GPU-a").parts); got != "map[0:8]" {
		t.Errorf("the daemon gave %s", got)
	}
}

func TestPartitionsOfADaemonThatIsGoneAreNobodys(t *testing.T) {
	h := partitionedHost(t)
	inject(t, h, wanting(30, asks("a", "main")))
	h.kill("GPU-a")
	in := inject(t, h, wanting(50, asks("b", "main"))) // the new daemon begins to count anew
	if !slices.Contains(lines(in.Env), "CUDA_MPS_SM_PARTITION=GPU-a/p0") {
		t.Fatalf("the environment is %q", lines(in.Env))
	}
	in = inject(t, h, wanting(30, asks("a", "main")))
	if !slices.Contains(lines(in.Env), "CUDA_MPS_SM_PARTITION=GPU-a/p1") {
		t.Errorf("two containers have one partition: %q", lines(in.Env))
	}
	h.kill("GPU-a")
	inject(t, h, wanting(50, asks("b", "main")))
	if err := h.fresh().Unprepare(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.daemonOf("GPU-a").parts); got != "map[0:13]" {
		t.Errorf("after the end of one the other has %s", got)
	}
}

func TestWhoAsksForNoComputeIsToldToWherePartitionsAreGiven(t *testing.T) {
	_, err := partitionedHost(t).fresh().Prepare(context.Background(), wanting(0, asks("a", "main")))
	if err == nil || !strings.Contains(err.Error(), "set vgpu-cores") {
		t.Errorf("the answer is %v", err)
	}
}

func TestADaemonWithOtherOptionsIsReplacedOnceNobodyUsesIt(t *testing.T) {
	h := newHost(t)
	inject(t, h, wanting(30, asks("a", "main")))
	h.partitions = true
	_, err := h.fresh().Prepare(context.Background(), wanting(30, asks("b", "main")))
	if err == nil || !strings.Contains(err.Error(), "other options") || !strings.Contains(err.Error(), "1 containers use it") {
		t.Errorf("beside another container the answer is %v", err)
	}
	if err := h.fresh().Unprepare(context.Background(), "a"); err != nil {
		t.Fatal(err)
	}
	h.daemonOf("GPU-a").clients = []int{4242}
	_, err = h.fresh().Prepare(context.Background(), wanting(30, asks("b", "main")))
	if err == nil || !strings.Contains(err.Error(), "4242") {
		t.Errorf("with a process that is left the answer is %v", err)
	}
	h.daemonOf("GPU-a").clients = nil
	inject(t, h, wanting(30, asks("b", "main")))
	if !h.daemonOf("GPU-a").partitioned {
		t.Error("the old daemon still runs")
	}
	select {
	case r := <-h.restarts:
		t.Errorf("its replacement was told as a death: %+v", r)
	default:
	}
}

func TestAnswersAboutPartitionsThatAreNotUnderstoodAreErrors(t *testing.T) {
	for _, text := range []string{"", "Unknown command: lspart", "GPU-a has partitions", "GPU-a - 1"} {
		if _, err := readTable(text, "GPU-a"); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	for _, text := range []string{"", "Failed to create partition", "Partition created", "Partition GPU-a/x"} {
		if id, ok := parseCreatedID(text); ok {
			t.Errorf("%q was read as %s", text, id)
		}
	}
}

// FuzzTable: a daemon may print anything.
func FuzzTable(f *testing.F) {
	f.Add("GPU-f6 - 18 9 72 36\nGPU-f6 GPU-f6/Ax - 9 - 36\n")
	f.Add("Partition GPU-f6/Ax created\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := readTable(text, "GPU-a"); err == nil {
			for _, id := range got.ids {
				if !strings.Contains(id, "/") {
					t.Errorf("%q is no id", id)
				}
			}
		}
		if id, ok := parseCreatedID(text); ok && !strings.Contains(id, "/") {
			t.Errorf("%q is no id", id)
		}
	})
}

func TestTheStandInReservesMultiprocessors(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	program, d := standIn(t)
	if known, err := program.KnowsPartitions(ctx); err != nil || known {
		t.Fatalf("a driver of CUDA 13.0 knows partitions: %v, %v", known, err)
	}
	newerDriver(t)
	if known, err := program.KnowsPartitions(ctx); err != nil || !known {
		t.Fatalf("a driver of CUDA 13.1 knows partitions: %v, %v", known, err)
	}
	p := over(program, d)
	p.cfg.Partitions = true
	d = p.daemonFor(fakeUUID)
	if _, err := p.ensureDaemon(ctx, d, deviceRecord{Version: version, MemoryMiB: 8000, Percentage: 100}); err != nil {
		t.Fatal(err)
	}
	c := wanting(30, asks("uid", "main"))
	c.Devices[0].Device.ID, c.Devices[0].Share.Device = fakeUUID, fakeUUID
	id, err := p.assignChunksInTime(ctx, d, &c)
	if err != nil || !strings.HasPrefix(id, fakeUUID+"/") {
		t.Fatalf("partition %q, %v", id, err)
	}
	if again, err := p.assignChunksInTime(ctx, d, &c); err != nil || again != id {
		t.Errorf("asked again it is %q, %v", again, err)
	}
	if err := p.Unprepare(ctx, "uid"); err != nil {
		t.Error(err)
	}
	text, err := program.Tell(ctx, d, "lspart")
	if err != nil || strings.Contains(text, id) {
		t.Errorf("it is still there: %s (%v)", text, err)
	}
	if err := p.quitDaemon(ctx, d); err != nil {
		t.Error(err)
	}
}
