// SPDX-License-Identifier: Apache-2.0

package news

// Pod identifies a pod by its UID.
type Pod string

// Memory is what the waiting pods were told. It is not safe for concurrent use.
type Memory struct {
	limits Limits
	pods   map[Pod]*entry
	round  uint64
	now    int64
	// repeats is how many pods may still be told something else about the same cause in this round.
	repeats int
	// mentioned is how many pods of the memory were asked about in this round.
	mentioned int
}

type entry struct {
	told  lastTold
	round uint64
}

// Limits bound a memory.
type Limits struct {
	// Pods is how many pods are remembered. What does not fit is told as it comes.
	Pods int
	// Repeats is how many pods are told something else about the same cause in one round. Each is a
	// write.
	Repeats int
}

// NewMemory returns a memory that knows nobody.
func NewMemory(l Limits) *Memory { return &Memory{limits: l, pods: map[Pod]*entry{}} }

// Begin begins a round at a time in seconds.
func (m *Memory) Begin(now int64) {
	m.round++
	m.now, m.repeats, m.mentioned = now, m.limits.Repeats, 0
}

// Tell returns what to show as the reason of a pod that waits for a cause: this text, or what it
// was told before.
func (m *Memory) Tell(pod Pod, cause Cause, text string) string {
	e := m.pods[pod]
	switch {
	case e == nil && len(m.pods) >= m.limits.Pods:
		return text
	case e == nil:
		e = &entry{}
		m.pods[pod] = e
	}
	if e.round != m.round {
		e.round = m.round
		m.mentioned++
	}
	if e.told.Text == text && e.told.Next == "" {
		return text
	}
	repeat := !e.told.isNews(cause)
	next, news := e.told.After(cause, text, m.now)
	switch {
	case news && repeat && m.repeats == 0:
		return e.told.Text // its turn comes in a later round
	case news && repeat:
		m.repeats--
	}
	e.told = next
	return next.Text
}

// End ends the round: who was not mentioned in it waits no more and is forgotten.
func (m *Memory) End() {
	if m.mentioned == len(m.pods) {
		return
	}
	for pod, e := range m.pods {
		if e.round != m.round {
			delete(m.pods, pod)
		}
	}
}

// Len is how many pods are remembered.
func (m *Memory) Len() int { return len(m.pods) }
