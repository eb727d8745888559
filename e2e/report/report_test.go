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

func TestPartitionsAreReadWithTheirUsers(t *testing.T) {
	const show = `driver=580.95.05 cuda=13.0 devices=2
device index=0 uuid=GPU-a model="NVIDIA A100" total_mib=81920 mig=on
  slices |1g.10gb |.       |.       |.       |3g.40gb                            |
  instance gi=2 ci=0 profile=3g.40gb start=4 size=4 uuid=MIG-x total_mib=40192 used_mib=10
    process pid=7 own_pid=1 name=cudaclient used_mib=10 busy_ms=0
  instance gi=7 ci=none start=0 size=1
device index=1 uuid=GPU-b model="NVIDIA A100" total_mib=81920 mig=off
  process pid=9 own_pid=1 name=cudaclient used_mib=10 busy_ms=0
`
	got := Instances(show)
	if len(got) != 1 {
		t.Fatalf("got %+v, want the one usable partition", got)
	}
	i := got[0]
	if i.Device != "GPU-a" || i.UUID != "MIG-x" || i.Profile != "3g.40gb" || i.Start != 4 || i.Size != 4 || len(i.Users) != 1 {
		t.Errorf("got %+v", i)
	}
}
