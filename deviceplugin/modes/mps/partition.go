// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Static partitions reserve multiprocessors for a container, where a percentage is
// a cap only. They are made of chunks, some multiprocessors each; the daemon must
// have been started for them, and then every client needs one.

// table is the static partitions of a device as its daemon lists them.
type table struct {
	free, used int // chunks
	ids        []string
}

// readTable reads the answer to lspart: a line for the device, whose first numbers
// are its free and its used chunks, and one for each partition, whose id is the only
// word with a slash.
func readTable(text string, id sharing.DeviceID) (table, error) {
	t, found := table{}, false
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || !strings.HasPrefix(words[0], "GPU-") {
			continue
		}
		if i := slices.IndexFunc(words, func(w string) bool { return strings.Contains(w, "/") }); i >= 0 {
			t.ids = append(t.ids, words[i])
			continue
		}
		var numbers []int
		for _, w := range words[1:] {
			if n, err := strconv.Atoi(w); err == nil {
				numbers = append(numbers, n)
			}
		}
		if len(numbers) >= 2 {
			t.free, t.used, found = numbers[0], numbers[1], true
		}
	}
	if !found {
		return table{}, fmt.Errorf("the MPS control daemon of device %s does not say how many chunks it has: %q", id, text)
	}
	return t, nil
}

// parseCreatedID reads the answer to sm_partition add: "Partition <id> created".
func parseCreatedID(text string) (string, bool) {
	for _, line := range strings.Split(text, "\n") {
		id, ok := strings.CutPrefix(strings.TrimSpace(line), "Partition ")
		if id, done := strings.CutSuffix(id, " created"); ok && done && strings.Contains(id, "/") {
			return id, true
		}
	}
	return "", false
}

// chunksForShare is how many of a device's chunks a share gets: as many as its percentage of what
// is offered pays for. Shares then never come to more than the device. It is 0 for a share that
// pays for none.
func chunksForShare(c *modes.ClaimedDevice, all int) int {
	if c.Share.Whole || c.Share.Cores >= 100 {
		return all
	}
	return int(c.Share.Cores) * all / offeredCores(&c.Device)
}

// offeredCores is the compute of which shares are parts, in percent.
func offeredCores(d *sharing.Device) int { return max(100, int(d.Cores)) }

// tooSmall says how much a share must ask for at least to get a chunk.
func tooSmall(c *modes.ClaimedDevice, all int) error {
	least := (offeredCores(&c.Device) + all - 1) / max(all, 1)
	return fmt.Errorf("in mode mps this node reserves multiprocessors (--mps-compute=partition), and %d%% is less than one of the %d chunks of device %s: set vgpu-cores to %d or more",
		c.Share.Cores, all, c.Device.ID, least)
}

// assignChunksInTime gives the container its multiprocessors: those it has, or new ones.
func (p *Preparer) assignChunksInTime(ctx context.Context, d Daemon, c *modes.Claim) (id string, err error) {
	return id, runCommands(ctx, func(ctx context.Context) (err error) {
		id, err = p.assignChunks(ctx, d, c)
		return err
	})
}

// assignChunks makes a static partition for the container. One that no container is known to
// have was made before a crash and is removed.
func (p *Preparer) assignChunks(ctx context.Context, d Daemon, c *modes.Claim) (string, error) {
	share := &c.Devices[0].Share
	if !share.Whole && share.Cores == 0 {
		return "", errors.New("in mode mps this node reserves multiprocessors (--mps-compute=partition), and the container asks for none: set vgpu-cores")
	}
	text, err := p.sendCommand(ctx, d, "lspart")
	if err != nil {
		return "", err
	}
	t, err := readTable(text, d.Device)
	if err != nil {
		return "", err
	}
	there, err := p.claimsOnDevice(d.Device)
	if err != nil {
		return "", err
	}
	known := map[string]bool{}
	for _, o := range there {
		known[o.Partition] = true
		if o.owner == c.Owner && o.Container == c.Container && slices.Contains(t.ids, o.Partition) {
			return o.Partition, nil
		}
	}
	for _, id := range t.ids {
		if !known[id] {
			if err := p.removePartition(ctx, d, id); err != nil {
				return "", err
			}
		}
	}
	n := chunksForShare(&c.Devices[0], t.free+t.used)
	if n == 0 {
		return "", tooSmall(&c.Devices[0], t.free+t.used)
	}
	return p.makePartition(ctx, d, c, n)
}

// forgetPartitions takes their partitions from all claims of a device whose daemon is
// gone: another daemon may give the same names to others.
func (p *Preparer) forgetPartitions(id sharing.DeviceID) error {
	there, err := p.claimsOnDevice(id)
	if err != nil {
		return err
	}
	for _, c := range there {
		if c.Partition == "" {
			continue
		}
		c.Partition = ""
		if err := p.cfg.Files.Write(filepath.Join(p.limits.Dir(c.owner, c.Container), "claim"), encodeRecord(c), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (p *Preparer) makePartition(ctx context.Context, d Daemon, c *modes.Claim, n int) (string, error) {
	text, err := p.sendCommand(ctx, d, fmt.Sprintf("sm_partition add %s %d", d.Device, n))
	if err != nil {
		return "", err
	}
	id, ok := parseCreatedID(text)
	if !ok {
		return "", fmt.Errorf("device %s: %d chunks of multiprocessors are not to be had: %s", d.Device, n, strings.TrimSpace(text))
	}
	return id, p.writeClaimRecord(c, id)
}

func (p *Preparer) removePartition(ctx context.Context, d Daemon, id string) error {
	_, short, _ := strings.Cut(id, "/")
	text, err := p.sendCommand(ctx, d, fmt.Sprintf("sm_partition rm %s %s", d.Device, short))
	if err == nil && strings.Contains(text, "Failed") {
		err = fmt.Errorf("device %s: partition %s is not given back: %s", d.Device, id, strings.TrimSpace(text))
	}
	return err
}

// giveBack removes the static partitions of an owner's containers. A partition whose
// record cannot be read is removed when its chunks are needed.
func (p *Preparer) giveBack(ctx context.Context, o sharing.Owner) error {
	all, _ := p.claimsOf(func(x sharing.Owner) bool { return x == o })
	var failed []error
	for _, c := range all {
		if c.Partition != "" {
			failed = append(failed, p.giveBackOne(ctx, c))
		}
	}
	return errors.Join(failed...)
}

func (p *Preparer) giveBackOne(ctx context.Context, c claimRecord) error {
	defer p.lockDevice(c.Device)()
	d := p.daemonFor(c.Device)
	pid, err := p.daemonPID(d)
	if err != nil || pid == 0 {
		return err // without a daemon they went with it
	}
	text, err := p.sendCommand(ctx, d, "lspart")
	if err != nil {
		return err
	}
	t, err := readTable(text, c.Device)
	if err != nil || !slices.Contains(t.ids, c.Partition) {
		return err
	}
	return p.removePartition(ctx, d, c.Partition)
}
