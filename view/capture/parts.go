// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"bufio"
	"bytes"
	"fmt"
	"runtime"
)

// partSize is how much text is worth handing to another goroutine.
const partSize = 256 << 10

// part is some lines in a row, and what they hold.
type part struct {
	first int // the number of the first line
	text  []byte
	ends  []int // where each line ends in text
	state State
	// unread are the first lines that cannot be read, of as many as mistakes.
	unread   []string
	mistakes int
	done     chan struct{}
}

// eachPart reads the lines that follow the first on all processors and hands them over in their
// order, those of Scheduling only if all are wanted. No more texts are in memory than one for each
// processor and the one that is filled.
func eachPart(in *bufio.Scanner, all bool, take func(*part)) {
	processors := runtime.GOMAXPROCS(0)
	unread, inOrder := make(chan *part), make(chan *part, processors)
	texts := make(chan []byte, processors+1)
	for range processors {
		texts <- nil
		go func() {
			for p := range unread {
				texts <- p.readLines()
				close(p.done)
			}
		}()
	}
	texts <- nil
	go func() {
		defer close(unread)
		defer close(inOrder)
		for first := 2; ; {
			p := &part{first: first, text: <-texts, done: make(chan struct{})}
			if all {
				p.state.Scheduling = &Scheduling{}
			}
			if !p.scanLines(in) {
				return
			}
			first += len(p.ends)
			inOrder <- p
			unread <- p
		}
	}()
	for p := range inOrder {
		<-p.done
		take(p)
	}
}

// scanLines takes lines from the text; false if there are none left.
func (p *part) scanLines(in *bufio.Scanner) bool {
	for len(p.text) < partSize && in.Scan() {
		p.text = append(p.text, in.Bytes()...)
		p.ends = append(p.ends, len(p.text))
	}
	return len(p.ends) > 0
}

// readLines reads the lines and returns the room that their text took.
func (p *part) readLines() []byte {
	p.state.alike = newContainerCache()
	from := 0
	for i, to := range p.ends {
		text := bytes.TrimSpace(p.text[from:to])
		from = to
		if len(text) == 0 || p.state.Scheduling == nil && isScheduling(text) {
			continue
		}
		if err := p.state.readLine(text); err != nil {
			if p.mistakes++; p.mistakes <= mostUnread {
				p.unread = append(p.unread, fmt.Sprintf("line %d: %v", p.first+i, err))
			}
		}
	}
	room := p.text[:0]
	p.text, p.ends, p.state.alike = nil, nil, nil
	return room
}
