// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/sharing"
)

// Where these are exceeded the process is restarted, and in the shipped DaemonSet
// the MPS daemons of all devices end with it: every container in mode mps then
// meets CUDA errors, on healthy devices too. Calls of a driver in trouble may take
// minutes and come back, so that only what certainly hangs counts.
const (
	longestSilence = 5 * time.Minute
	longestRelease = 10 * time.Minute
)

// vitals is what tells a plugin that works from one that hangs.
type vitals struct {
	// looked is when the loop that watches the devices was last seen at work; zero
	// before it has begun, which does not count: it waits for the API server then.
	looked time.Time
	// pause is how long that loop rests at most, besides.
	pause time.Duration
	// owner is whose release hangs for longest, since when; zero if none hangs.
	owner sharing.Owner
	since time.Time
}

// findHang says what hangs for so long that only a restart may help, nil if nothing
// does. What fails and says why does not count: a restart would not mend it.
func findHang(now time.Time, v vitals) error {
	if silent := now.Sub(v.looked); !v.looked.IsZero() && silent > longestSilence+v.pause {
		return fmt.Errorf("a call of the driver does not return: the devices have not been looked at for %s", silent.Round(time.Second))
	}
	if took := now.Sub(v.since); !v.since.IsZero() && took > longestRelease {
		return fmt.Errorf("the release of a pod's devices hangs for %s: the log names the pod", took.Round(time.Second))
	}
	return nil
}

// CheckHealth says what keeps the plugin, which keeps its files in stateDir, from its work, nil if
// nothing does. A missing driver does not count: restarting this process would not bring it. One
// that does not return does. Everybody may read the answer, so it names no pod: the log does.
func CheckHealth(m *Monitor, r *Releaser, stateDir string) error {
	select {
	case <-r.stopped:
		return errors.New("the release queue has stopped")
	default:
	}
	if _, err := os.Stat(stateDir); err != nil {
		return fmt.Errorf("the state directory is out of reach: %w", err)
	}
	v := vitals{pause: m.cfg.Retry, looked: m.lastLook()}
	v.owner, v.since = r.longestHanging()
	err := findHang(time.Now(), v)
	if err != nil {
		klog.ErrorS(err, "unwell", "owner", v.owner)
	}
	return err
}
