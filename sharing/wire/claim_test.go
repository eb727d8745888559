// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// claim1 is what a claim with one request was given: two shares, one of them a partition.
func claim1() wire.ClaimPlacement {
	p := pod1()
	p.Group = ""
	p.Containers = p.Containers[2:3]
	p.Containers[0].Container = "gpu"
	return wire.ClaimPlacement{Placement: p, Queue: "team-a"}
}

// signed is a placement of a claim that a key vouches for.
func signed(t testing.TB, c wire.ClaimPlacement, owner sharing.Owner, key wire.SigningKey) wire.ClaimPlacement {
	t.Helper()
	text, err := c.SignedText()
	if err != nil {
		t.Fatal(err)
	}
	if c.Signature, err = wire.EncodeSignature(key.Sign(wire.Signed{Owner: owner, Node: c.Placement.Node, Placement: text})); err != nil {
		t.Fatal(err)
	}
	return c
}

func encodeClaim(t testing.TB, c wire.ClaimPlacement) string {
	t.Helper()
	text, err := wire.EncodeClaimPlacement(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The text is stored in clusters: a change of it is a change of the format.
func TestThePlacementOfAClaimStaysAsItIs(t *testing.T) {
	const placement = `{"version":1,"node":"node1","geometryHash":"abc123","containers":[` +
		`{"name":"gpu","kind":"app","shares":[{"uuid":"GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448","mode":"hami-core","memory":1048576000,"cores":30},` +
		`{"uuid":"GPU-1a2b3c4d-0000-4000-8000-000000000001","mode":"mig","memory":20937965568,"cores":0,` +
		`"partition":{"profile":"2g.20gb","start":2,"size":2,"geometry":"group2","position":2}}]}]}`
	const begin = `{"apiVersion":"vgpu.volcano.sh/v1","kind":"Placement","version":1,`
	key, _ := signingKey(t, 3)
	with := signed(t, claim1(), "uid-1", key)
	without := claim1()
	without.Queue = ""
	for name, c := range map[string]struct {
		claim wire.ClaimPlacement
		want  string
	}{
		"with a queue":           {claim1(), begin + `"queue":"team-a","placement":` + placement + `}`},
		"of no queue":            {without, begin + `"placement":` + placement + `}`},
		"with a signature":       {with, begin + `"queue":"team-a","placement":` + placement + `,"signature":` + with.Signature + `}`},
		"the names are for good": {claim1(), `{"apiVersion":"` + wire.ClaimVersion + `","kind":"` + wire.ClaimPlacementKind + `","version":1,"queue":"team-a","placement":` + placement + `}`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := encodeClaim(t, c.claim); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if again := encodeClaim(t, c.claim); again != c.want {
				t.Errorf("written twice: %s", again)
			}
			if !wire.IsClaimPlacement([]byte(c.want)) {
				t.Error("it is not seen to be a placement")
			}
			back, err := wire.DecodeClaimPlacement([]byte(c.want))
			if err != nil || !reflect.DeepEqual(back, c.claim) {
				t.Errorf("%v\ngot  %+v\nwant %+v", err, back, c.claim)
			}
		})
	}
	if text, err := with.SignedText(); err != nil || text != placement {
		t.Errorf("signed is %s, %v", text, err)
	}
	if wire.ClaimDriver != "vgpu.volcano.sh" || wire.ShareParametersKind != "ShareParameters" {
		t.Error("users write these names")
	}
}

// What is signed is found again in what was read, however an API server has written it meanwhile.
func TestASignatureSurvivesTheWayThroughTheAPIServer(t *testing.T) {
	key, public := signingKey(t, 7)
	text := encodeClaim(t, signed(t, claim1(), "uid-1", key))
	for name, stored := range map[string]string{
		"as it was": text,
		"indented":  strings.NewReplacer(`":`, "\" : ", `,"`, ",\n  \"").Replace(text),
		"with a field of a later version": strings.NewReplacer(`"queue":`, `"later":[1],"queue":`, `"node":`, `"later":2,"node":`).
			Replace(text),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeClaimPlacement([]byte(stored))
			if err != nil {
				t.Fatal(err)
			}
			placed, err := got.SignedText()
			if err != nil {
				t.Fatal(err)
			}
			s, err := wire.DecodeSignature(got.Signature)
			if err != nil {
				t.Fatal(err)
			}
			what := wire.Signed{Owner: "uid-1", Node: "node1", Placement: placed}
			if v := s.Check([]ed25519.PublicKey{public}, what); v != wire.Genuine {
				t.Errorf("the signature is %v", v)
			}
			for forged := range map[wire.Signed]bool{{Owner: "uid-2", Node: "node1", Placement: placed}: true,
				{Owner: "uid-1", Node: "node2", Placement: placed}: true, {Owner: "uid-1", Node: "node1", Placement: placed + " "}: true} {
				if s.Check([]ed25519.PublicKey{public}, forged) == wire.Genuine {
					t.Errorf("it is genuine for %+v as well", forged)
				}
			}
		})
	}
}

func TestMistakesInThePlacementOfAClaim(t *testing.T) {
	key, _ := signingKey(t, 3)
	text := encodeClaim(t, signed(t, claim1(), "uid-1", key))
	replace := func(old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%s is not in %s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	for name, c := range map[string]struct{ text, want string }{
		"nothing":                          {"", "claim placement: byte 0: the text ends too early"},
		"a list":                           {"[]", "is not a JSON object"},
		"something behind it":              {text + "{}", "invalid character '{'"},
		"another version":                  {replace(`"version":1`, `"version":2`), "claim placement: version: 2 is not known, this reader knows 1"},
		"no version":                       {replace(`"version":1,`, ``), "claim placement: version: is missing"},
		"another apiVersion":               {replace(`sh/v1"`, `sh/v2"`), `claim placement: apiVersion: "vgpu.volcano.sh/v2" is not vgpu.volcano.sh/v1`},
		"what users ask with":              {replace(`"Placement"`, `"ShareParameters"`), `claim placement: kind: "ShareParameters" is not Placement`},
		"null":                             {replace(`"team-a"`, `null`), "claim placement: \"queue\""},
		"a field twice":                    {replace(`"queue"`, `"Queue":"x","queue"`), "is there twice"},
		"a queue of two lines":             {replace(`team-a`, `team\na`), "claim placement: queue: \"team\\na\" is not the name of a queue"},
		"a number for a queue":             {replace(`"team-a"`, `1`), "claim placement: queue (byte"},
		"no placement":                     {`{"apiVersion":"vgpu.volcano.sh/v1","kind":"Placement","version":1}`, "claim placement: placement: is missing"},
		"a placement that is a text":       {replace(`{"version":1,"node"`, `"","x":{"version":1,"node"`), "claim placement: placement"},
		"a placement of another version":   {replace(`{"version":1,"node"`, `{"version":2,"node"`), "claim placement: placement.version: 2 is not known"},
		"a placement without a node":       {replace(`"node":"node1"`, `"node":""`), "claim placement: placement.node: \"\" is not a node name"},
		"no request":                       {replace(`"containers":[{"name"`, `"containers":[],"x":[{"name"`), "claim placement: placement.containers: have no share"},
		"a share of no memory":             {replace(`"memory":1048576000`, `"memory":0`), "claim placement: placement.containers[0].shares[0].memory"},
		"an init container, which ends":    {replace(`"app"`, `"init"`), "claim placement: placement.containers[0].kind: init is no request of a claim, want app"},
		"a signature that is none":         {replace(`"key":"`, `"key":"x`), "claim placement: signature.key: "},
		"a signature of a later version":   {replace(`"signature":{"version":1`, `"signature":{"version":2`), "claim placement: signature.version: 2 is not known"},
		"more than a reader takes at once": {text + strings.Repeat(" ", wire.MaxText), "bytes long"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := wire.DecodeClaimPlacement([]byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the answer is %v, want %q", err, c.want)
			}
			explained(t, err)
			if !reflect.DeepEqual(got, wire.ClaimPlacement{}) {
				t.Errorf("half-read: %+v", got)
			}
		})
	}
}

func TestWhatCannotBeReadIsNotWrittenForAClaim(t *testing.T) {
	for name, edit := range map[string]func(*wire.ClaimPlacement){
		"no node":                 func(c *wire.ClaimPlacement) { c.Placement.Node = "" },
		"no share":                func(c *wire.ClaimPlacement) { c.Placement.Containers = nil },
		"a sidecar":               func(c *wire.ClaimPlacement) { c.Placement.Containers[0].Kind = sharing.Sidecar },
		"a queue of two lines":    func(c *wire.ClaimPlacement) { c.Queue = "a\nb" },
		"a signature of no JSON":  func(c *wire.ClaimPlacement) { c.Signature = "genuine" },
		"a signature that is not": func(c *wire.ClaimPlacement) { c.Signature = `{"version":1}` },
	} {
		t.Run(name, func(t *testing.T) {
			c := claim1()
			edit(&c)
			if text, err := wire.EncodeClaimPlacement(c); err == nil || text != nil {
				t.Errorf("written as %s", text)
			}
		})
	}
}

// most is a claim with some devices, described at length.
func most(devices int) wire.ClaimPlacement {
	key, _ := wire.NewSigningKey(make([]byte, ed25519.SeedSize))
	c := wire.ClaimPlacement{Queue: strings.Repeat("q", 63), Placement: sharing.Placement{Node: strings.Repeat("n", 63), GeometryHash: "5d41402abc4b2a76",
		Containers: []sharing.ContainerShares{{Container: strings.Repeat("r", 63)}}}}
	for i := range devices {
		c.Placement.Containers[0].Shares = append(c.Placement.Containers[0].Shares, sharing.Share{
			Device: sharing.DeviceID(fmt.Sprintf("GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d14%02d", i)), Mode: sharing.MIG, Memory: 20937965568,
			Partition: sharing.Partition{Profile: "1g.10gb+me.all", Start: 10, Size: 2, Geometry: "a_geometry_of_31_letters_in_all", Position: 12}})
	}
	c.Signature, _ = wire.EncodeSignature(key.Sign(wire.Signed{}))
	return c
}

func TestTheGreatestClaimFitsIntoAnAllocation(t *testing.T) {
	const limit = 10 << 10 // resource.OpaqueParametersMaxLength of Kubernetes
	if n := len(encodeClaim(t, most(32))); n > limit*9/10 {
		t.Errorf("32 shares are %d bytes of %d", n, limit)
	}
	if text, err := wire.EncodeClaimPlacement(most(64)); err == nil || text != nil || !strings.Contains(err.Error(), "more than 10240") {
		t.Errorf("%d bytes are written: %v", len(text), err)
	}
}

func TestOnlyAnObjectOfItsKindIsAPlacement(t *testing.T) {
	for text, want := range map[string]bool{
		`{"kind":"Placement"}`: true, `{"kind":"Placement","x":null}`: true, `{"KIND":"Placement"}`: true,
		`{"kind":"ShareParameters"}`: false, `{"kind":["Placement"]}`: false, `{}`: false, `[]`: false, ``: false, `null`: false, `"Placement"`: false, `{"kind":"Placement"`: false,
	} {
		if got := wire.IsClaimPlacement([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Random placements come back as they were. Names of devices in results are what the API takes, and
// different for different shares of one node.
func TestRandomPlacementsOfClaims(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, seed))
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	for range 2000 {
		want := wire.ClaimPlacement{Placement: randomPlacement(r), Queue: pick(r, "", "team-a", "root/a")}
		shares := 0
		for i := range want.Placement.Containers {
			want.Placement.Containers[i].Kind = sharing.App
			shares += len(want.Placement.Containers[i].Shares)
		}
		text, err := wire.EncodeClaimPlacement(want)
		if shares == 0 || err != nil && strings.Contains(err.Error(), "more than 10240") {
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := wire.DecodeClaimPlacement(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %v\ngot  %+v\nwant %+v", seed, err, got, want)
		}
		for _, c := range got.Placement.Containers {
			for i := range c.Shares {
				if name := wire.ClaimDevice(&c.Shares[i]); len(name) > 63 || !label.MatchString(name) {
					t.Fatalf("seed %d: %+v is called %q", seed, c.Shares[i], name)
				}
			}
		}
	}
}

func TestDevicesInResultsAreNamedByWhatTheyAre(t *testing.T) {
	for want, s := range map[string]sharing.Share{
		"gpu-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448":           {Device: idA},
		"gpu-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448-1g-10gb-3": {Device: idA, Partition: sharing.Partition{Profile: "1g.10gb", Size: 1, Start: 3}},
		"gpu-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448-1g-10gb-me-0": {
			Device: idA, Partition: sharing.Partition{Profile: "1g.10gb+me", Size: 1}},
		"0":                     {Device: "__0--"},
		"device-0fc3eda5":       {Device: sharing.DeviceID("DEVICE_0fc3eda5")},
		strings.Repeat("x", 63): {Device: sharing.DeviceID(strings.Repeat("X", 100))},
		strings.Repeat("x", 62): {Device: sharing.DeviceID(strings.Repeat("X", 62) + "/y")},
	} {
		if got := wire.ClaimDevice(&s); got != want {
			t.Errorf("%+v is called %q, want %q", s, got, want)
		}
	}
}

func FuzzClaimPlacement(f *testing.F) {
	key, _ := signingKey(f, 1)
	f.Add([]byte(encodeClaim(f, claim1())))
	f.Add([]byte(encodeClaim(f, signed(f, claim1(), "uid-1", key))))
	f.Add([]byte(`{"apiVersion":"vgpu.volcano.sh/v1","kind":"Placement","version":1,"placement":{"version":1,"node":"n","containers":[]}}`))
	f.Add([]byte(`{"version":1,"VERSION":1,"placement":"","signature":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		c, err := wire.DecodeClaimPlacement(text)
		if !bytes.Equal(before, text) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			explained(t, err)
			return
		}
		if !wire.IsClaimPlacement(text) {
			t.Fatalf("%s is read, and is no placement", text)
		}
		again, err := wire.EncodeClaimPlacement(c)
		if err != nil {
			if strings.Contains(err.Error(), "more than 10240") {
				return // a text that no API server has taken
			}
			t.Fatalf("what was read cannot be written: %v", err)
		}
		back, err := wire.DecodeClaimPlacement(again)
		if err != nil || !reflect.DeepEqual(back, c) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, back, c)
		}
	})
}
