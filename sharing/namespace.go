// SPDX-License-Identifier: Apache-2.0

package sharing

// namespaces are those of the pods that have a share of a device. A device that serves all
// namespaces does not count them.
type namespaces struct {
	some, several bool // somebody is there; they are not known to be of one namespace
	one           string
}

func (a namespaces) mergedWith(b namespaces) namespaces {
	switch {
	case !b.some:
		return a
	case !a.some:
		return b
	}
	a.several = a.several || b.several || !a.admitsPodOf(b.one)
	return a
}

// admitsPodOf reports whether a pod of a namespace is served beside those that are there. One that
// is not known is another than any.
func (a namespaces) admitsPodOf(name string) bool {
	return !a.some || !a.several && a.one != "" && a.one == name
}
