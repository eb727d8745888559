// SPDX-License-Identifier: Apache-2.0

package claimspec_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/request"
)

// at is the path of the parameters of the claim's first configuration.
const at = "spec.devices.config[0].opaque.parameters"

// parameters are ShareParameters with these fields beside apiVersion and kind.
func parameters(fields string) string {
	if fields != "" {
		fields = "," + fields
	}
	return `{"apiVersion":"vgpu.volcano.sh/v1","kind":"ShareParameters"` + fields + `}`
}

func read(text string) (claimspec.Parameters, []request.Mistake) {
	return claimspec.ReadParameters("spec.devices.config[0]", []byte(text))
}

func compare(t *testing.T, mistakes []request.Mistake, want []string) {
	t.Helper()
	if got := request.Texts(mistakes); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func pointer[T any](v T) *T { return &v }

func TestWhatParametersAsk(t *testing.T) {
	absolute := func(b sharing.Bytes) *sharing.Memory { return pointer(sharing.AbsoluteMemory(b)) }
	for name, c := range map[string]struct {
		fields string
		want   claimspec.Parameters
	}{
		"nothing":               {``, claimspec.Parameters{}},
		"an amount of memory":   {`"memory":"10Gi"`, claimspec.Parameters{Memory: absolute(10 * sharing.GiB)}},
		"a part of the memory":  {`"memoryPercentage":50`, claimspec.Parameters{Memory: pointer(sharing.PercentMemory(50))}},
		"the whole memory":      {`"memoryPercentage":100`, claimspec.Parameters{Memory: pointer(sharing.PercentMemory(100))}},
		"a part of the compute": {`"cores":30`, claimspec.Parameters{Cores: pointer(sharing.Percent(30))}},
		"no guarantee of compute, which a class or the defaults may ask for": {
			`"cores":0`, claimspec.Parameters{Cores: pointer(sharing.Percent(0))},
		},
		"modes in order of preference": {`"modes":["mps","mig"]`, claimspec.Parameters{Modes: []sharing.Mode{sharing.MPS, sharing.MIG}}},
		"a mode of somebody else":      {`"modes":["example.com/pairs"]`, claimspec.Parameters{Modes: []sharing.Mode{"example.com/pairs"}}},
		"a policy":                     {`"policy":"binpack"`, claimspec.Parameters{Policy: "binpack"}},
		"devices of one NUMA node":     {`"numa":"single"`, claimspec.Parameters{OneNUMA: pointer(true)}},
		"everything": {
			` "cores" : 100 , "memory":"1Ti","modes":["mig"],"policy":"spread","numa":"single" `,
			claimspec.Parameters{Memory: absolute(1 << 40), Cores: pointer(sharing.Percent(100)),
				Modes: []sharing.Mode{sharing.MIG}, Policy: "spread", OneNUMA: pointer(true)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, mistakes := read(parameters(c.fields))
			if len(mistakes) > 0 {
				t.Fatal(mistakes)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAmountsOfMemoryAsPeopleWriteThem(t *testing.T) {
	const unit = " is no amount of memory: want one such as 10Gi or 512Mi"
	for written, c := range map[string]struct {
		mib  int64
		want string // the mistake
	}{
		`"10Gi"`:       {mib: 10240},
		`"512Mi"`:      {mib: 512},
		`"1.5Gi"`:      {mib: 1536},
		`".5Gi"`:       {mib: 512},
		`"2.Gi"`:       {mib: 2048},
		`"1048576Ki"`:  {mib: 1024},
		`"16Ti"`:       {mib: 16 << 20},
		`"0010Gi"`:     {mib: 10240},
		`"10G"`:        {mib: 9537}, // 9536.7
		`"1048577"`:    {mib: 2},
		`"1048576"`:    {mib: 1},
		`10737418240`:  {mib: 10240},
		`"1.0001Mi"`:   {mib: 2},
		`"1025k"`:      {want: "1025k is less than 1Mi"},
		`"10240"`:      {want: "10240 is less than 1Mi: a number alone is bytes, write 10240Mi for so many MiB"},
		`10240`:        {want: "10240 is less than 1Mi: a number alone is bytes, write 10240Mi for so many MiB"},
		`1`:            {want: "1 is less than 1Mi: a number alone is bytes, write 1Mi for so many MiB"},
		`"10GiB"`:      {want: `"10GiB"` + unit},
		`"10GB"`:       {want: `"10GB"` + unit},
		`"10gi"`:       {want: `"10gi"` + unit},
		`"10K"`:        {want: `"10K"` + unit},
		`"10 Gi"`:      {want: `"10 Gi"` + unit},
		`" 10Gi"`:      {want: `" 10Gi"` + unit},
		`"10Gi\n"`:     {want: `"10Gi\n"` + unit},
		`"1e9"`:        {want: `"1e9"` + unit},
		`1e9`:          {want: `1e9` + unit},
		`1.5e10`:       {want: `1.5e10` + unit},
		`"0x10Gi"`:     {want: `"0x10Gi"` + unit},
		`"1_000Mi"`:    {want: `"1_000Mi"` + unit},
		`"1/2Gi"`:      {want: `"1/2Gi"` + unit},
		`"1.2.3Gi"`:    {want: `"1.2.3Gi"` + unit},
		`"."`:          {want: `"."` + unit},
		`"Gi"`:         {want: `"Gi"` + unit},
		`"GiGi"`:       {want: `"GiGi"` + unit},
		`"10GiMi"`:     {want: `"10GiMi"` + unit},
		`"100m"`:       {want: `"100m"` + unit},
		`"50%"`:        {want: `"50%"` + unit},
		`"all"`:        {want: `"all"` + unit},
		`""`:           {want: `""` + unit},
		`null`:         {want: `null` + unit},
		`true`:         {want: `true` + unit},
		`["10Gi"]`:     {want: `["10Gi"]` + unit},
		`{"min":"1G"}`: {want: `{"min":"1G"}` + unit},
		`"-1"`:         {want: `"-1"` + unit},
		`-1`:           {want: `-1` + unit},
		`"+10Gi"`:      {want: `"+10Gi"` + unit},
		`0`:            {want: "0 is not more than 0: for the whole memory write memoryPercentage: 100 in the parameters"},
		`"0Gi"`:        {want: "0Gi is not more than 0: for the whole memory write memoryPercentage: 100 in the parameters"},
		`"17Ti"`:       {want: "17Ti is more than any device has"},
		`"10240Gi"`:    {mib: 10240 << 10},
		`"99999999999999999999Ti"`: {
			want: "99999999999999999999Ti is more than any device has",
		},
		`"` + strings.Repeat("9", 31) + `"`: {want: `"` + strings.Repeat("9", 31) + `"` + unit},
		`"` + strings.Repeat("9", 99) + `"`: {want: `"` + strings.Repeat("9", 59) + `...` + unit},
	} {
		t.Run(written, func(t *testing.T) {
			got, mistakes := read(parameters(`"memory":` + written))
			if c.want != "" {
				compare(t, mistakes, []string{at + ".memory: " + c.want})
				return
			}
			if len(mistakes) > 0 {
				t.Fatal(mistakes)
			}
			if b, _ := got.Memory.Absolute(); b != sharing.MiBs(c.mib) {
				t.Errorf("got %v, want %v", b, sharing.MiBs(c.mib))
			}
		})
	}
}

func TestMistakesInParameters(t *testing.T) {
	const fields = "is not known: the fields are memory, memoryPercentage, cores, modes, policy, numa"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"no text":                       {``, []string{at + ": is not an object"}},
		"null":                          {`null`, []string{at + ": is not an object"}},
		"a list":                        {`[{}]`, []string{at + ": is not an object"}},
		"a text":                        {`"10Gi"`, []string{at + ": is not an object"}},
		"an object that does not end":   {`{"kind":"ShareParameters"`, []string{at + ": is not an object"}},
		"an object and something after": {parameters("") + `{}`, []string{at + ": is not an object"}},
		"neither version nor kind, and a mistake below": {`{"cores":101}`, []string{
			at + ".apiVersion: is missing: write apiVersion: vgpu.volcano.sh/v1", at + ".kind: is missing: write kind: ShareParameters",
			at + ".cores: 101 is outside 0 to 100: it is percent of one device"}},
		"another version": {`{"apiVersion":"vgpu.volcano.sh/v2","kind":"ShareParameters"}`, []string{
			at + `.apiVersion: is "vgpu.volcano.sh/v2": want vgpu.volcano.sh/v1`}},
		"the parameters of another driver": {`{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":{}}`, []string{
			at + `.apiVersion: is "resource.nvidia.com/v1beta1": want vgpu.volcano.sh/v1`, at + `.kind: is "GpuConfig": want ShareParameters`}},
		"a version and a kind that are no texts": {`{"apiVersion":1,"kind":["ShareParameters"]}`, []string{
			at + ".apiVersion: is missing: write apiVersion: vgpu.volcano.sh/v1", at + ".kind: is missing: write kind: ShareParameters"}},
		"a placement, which would be a forged one": {`{"apiVersion":"vgpu.volcano.sh/v1","kind":"Placement","version":1}`, []string{
			at + ".kind: Placement is what the scheduler writes into a claim's status: write ShareParameters to ask for devices"}},
		"a kind in another spelling": {`{"apiVersion":"vgpu.volcano.sh/v1","kind":"shareparameters"}`, []string{
			at + `.kind: is "shareparameters": want ShareParameters`}},
		"fields that are not known": {parameters(`"count":2,"mode":"mig","Memory":"10Gi","vgpu-cores":30`), []string{
			at + ".Memory: " + fields, at + ".count: " + fields, at + ".mode: " + fields, at + ".vgpu-cores: " + fields}},
		"fields of pods that claims do not have": {parameters(`"split":"even","podgroupPolicy":"spread"`), []string{
			at + ".podgroupPolicy: " + fields, at + ".split: " + fields}},
		"a field twice": {parameters(`"memory":"1Gi","memory":"2Gi"`), []string{at + ".memory: is there twice"}},
		"memory and a percentage": {parameters(`"memory":"1Gi","memoryPercentage":50`), []string{
			at + ".memoryPercentage: given together with memory: give one of them"}},
		"a percentage of nothing": {parameters(`"memoryPercentage":0`), []string{
			at + ".memoryPercentage: 0 is outside 1 to 100: it is percent of one device"}},
		"a percentage of two devices": {parameters(`"memoryPercentage":200`), []string{
			at + ".memoryPercentage: 200 is outside 1 to 100: it is percent of one device"}},
		"a percentage with its sign": {parameters(`"memoryPercentage":"50%"`), []string{
			at + `.memoryPercentage: is "50%": want a whole number from 1 to 100, without quotes`}},
		"cores of two devices in one number": {parameters(`"cores":200`), []string{
			at + ".cores: 200 is outside 0 to 100: it is percent of one device"}},
		"negative cores": {parameters(`"cores":-1`), []string{at + ".cores: -1 is outside 0 to 100: it is percent of one device"}},
		"cores as a capacity has them": {parameters(`"cores":"30"`), []string{
			at + `.cores: is "30": want a whole number from 0 to 100, without quotes`}},
		"half a percent":     {parameters(`"cores":0.5`), []string{at + ".cores: is 0.5: want a whole number from 0 to 100, without quotes"}},
		"cores beyond int64": {parameters(`"cores":99999999999999999999`), []string{at + ".cores: is 99999999999999999999: want a whole number from 0 to 100, without quotes"}},
		"no cores":           {parameters(`"cores":null`), []string{at + ".cores: is null: want a whole number from 0 to 100, without quotes"}},
		"modes as an annotation has them": {parameters(`"modes":"mig,hami-core"`), []string{
			at + `.modes: is "mig,hami-core": want a list of modes in order of preference, such as [mig, hami-core]; leave it out for any`}},
		"no modes": {parameters(`"modes":[]`), []string{
			at + `.modes: is []: want a list of modes in order of preference, such as [mig, hami-core]; leave it out for any`}},
		"null modes": {parameters(`"modes":null`), []string{
			at + `.modes: is null: want a list of modes in order of preference, such as [mig, hami-core]; leave it out for any`}},
		"modes that there are not, and one twice": {parameters(`"modes":["MIG","mig","",null,"mig"]`), []string{
			at + `.modes[0]: unknown mode "MIG": want one of mig, hami-core, mps, time-slicing`,
			at + `.modes[2]: unknown mode "": want one of mig, hami-core, mps, time-slicing`,
			at + `.modes[3]: unknown mode "": want one of mig, hami-core, mps, time-slicing`,
			at + `.modes[4]: mig is there twice`}},
		"a policy that there is not": {parameters(`"policy":"best"`), []string{at + `.policy: is "best": want fragmentation, binpack, spread`}},
		"no policy":                  {parameters(`"policy":null`), []string{at + `.policy: is null: want fragmentation, binpack, spread`}},
		"two NUMA nodes":             {parameters(`"numa":2`), []string{at + `.numa: is 2: want single`}},
		"everything wrong at once, by field": {parameters(`"policy":1,"numa":"one","modes":["x"],"memory":"10GB","cores":-3,"extra":{}`), []string{
			at + ".cores: -3 is outside 0 to 100: it is percent of one device", at + ".extra: " + fields,
			at + `.memory: "10GB" is no amount of memory: want one such as 10Gi or 512Mi`,
			at + `.modes[0]: unknown mode "x": want one of mig, hami-core, mps, time-slicing`, at + `.numa: is "one": want single`,
			at + `.policy: is 1: want fragmentation, binpack, spread`}},
		"a long text is cut": {parameters(`"policy":"` + strings.Repeat("ä", 5000) + `"`), []string{
			at + `.policy: is "` + strings.Repeat("ä", 29) + `...: want fragmentation, binpack, spread`}},
		"a long field is cut": {parameters(`"` + strings.Repeat("x", 5000) + `":1`), []string{at + "." + strings.Repeat("x", 60) + "...: " + fields}},
	} {
		t.Run(name, func(t *testing.T) {
			got, mistakes := read(c.text)
			compare(t, mistakes, c.want)
			if !reflect.DeepEqual(got, claimspec.Parameters{}) {
				t.Errorf("half-read: %+v", got)
			}
		})
	}
}
