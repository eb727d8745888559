// SPDX-License-Identifier: Apache-2.0

package report

import "testing"

func TestValuesAreFoundByLineAndKey(t *testing.T) {
	const text = "info devices=2\ninfo index=0 uuid=GPU-a total=1\ninfo index=1 uuid=GPU-b total=2\nfree blocks=1\n"
	cases := []struct{ start, key, want string }{
		{"info index=1", "uuid", "GPU-b"},
		{"info", "uuid", "GPU-a"},
		{"free", "blocks", "1"},
		{"free", "uuid", ""},
		{"busy", "fraction", ""},
		{"info", "uui", ""},
	}
	for _, c := range cases {
		if got := Field(text, c.start, c.key); got != c.want {
			t.Errorf("%s in the line %q: got %q, want %q", c.key, c.start, got, c.want)
		}
	}
}
