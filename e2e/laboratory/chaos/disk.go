// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"

	"deviceshare/e2e/sandbox"
)

// records is where the device plugin keeps its records, filler a file there that leaves no room.
const (
	records = "/var/lib/deviceshare"
	filler  = records + "/filler"
)

// Confine gives the device plugin's records a small disk of their own, so that it can be filled.
// Its pod, and the keeper's, have to be made anew to see it.
func (d *Disturber) Confine(ctx context.Context) error {
	script := "cp -a " + records + " " + records + ".copy && mount -t tmpfs -o size=64m tmpfs " + records +
		" && cp -a " + records + ".copy/. " + records + " && rm -r " + records + ".copy"
	if out, err := d.cluster.Run(ctx, "sh", "-c", script); err != nil {
		return fmt.Errorf("give the records a disk of their own: %w\n%s", err, out)
	}
	// The keeper's socket is below it.
	return errors.Join(d.cluster.Restart(sandbox.Keeper), d.cluster.Restart(sandbox.DevicePlugin))
}

// Release undoes what a run does to a cluster's records, of which what is recorded stays, and to
// its priorities.
func Release(ctx context.Context, c *sandbox.Cluster) error {
	script := "cp -a " + records + " " + records + ".copy && umount --lazy " + records + " && rm -rf " + records + "/*" +
		" && cp -a " + records + ".copy/. " + records + " && rm -r " + records + ".copy"
	if out, err := c.Run(ctx, "sh", "-c", script); err != nil {
		return fmt.Errorf("take the records' own disk away: %w\n%s", err, out)
	}
	return errors.Join(c.Restart(sandbox.Keeper), c.Restart(sandbox.DevicePlugin), deletePriorities(ctx, c))
}

func (d *Disturber) fill(ctx context.Context) error {
	// dd ends with an error when nothing more goes on the disk.
	_, err := d.cluster.Run(ctx, "sh", "-c", "dd if=/dev/zero of="+filler+" bs=4k 2>/dev/null; test -s "+filler)
	return err
}

func (d *Disturber) empty(ctx context.Context) error {
	_, err := d.cluster.Run(ctx, "rm", "-f", filler)
	return err
}
