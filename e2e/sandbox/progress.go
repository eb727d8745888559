// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Progress takes one line per step. It may be called from several goroutines.
type Progress func(line string)

// TimedProgress writes each line to w with the time since now in front, as in "[ 12s] building the
// control plane".
func TimedProgress(w io.Writer) Progress {
	var mu sync.Mutex
	begin := time.Now()
	return func(line string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "[%4.0fs] %s\n", time.Since(begin).Seconds(), line)
	}
}
