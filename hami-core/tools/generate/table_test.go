// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"a line of another form":               {"cuda hook cuInit init (void)", "want <library>"},
		"an unknown library":                   {"hip hook 1 hipInit init (void)", "want cuda or nvml"},
		"an unknown class":                     {"cuda wrap 1 cuInit init (void)", "want hook, pace, call or none"},
		"a hook without a body":                {"cuda hook 1 cuInit - (void)", "a hook has a body"},
		"a call with a body":                   {"cuda call 1 cuInit init (void)", "another has none"},
		"a hook that is left alone, too":       {"cuda hook 1 cuA a (int n)\ncuda none 1 cuA - (tells)", "x:2: cuA is given twice"},
		"a symbol given twice":                 {"cuda call 1 cuA - (void)\ncuda call 1 cuA - (void)", "x:2: cuA is given twice"},
		"a body with two argument lists":       {"cuda hook 1 cuA b (int a)\ncuda hook 1 cuB b (long a)", "cuB: other arguments"},
		"a stream hook without its twin":       {"cuda hook 1 cuA b (int n, CUstream stream)", "no twin cuA_ptsz"},
		"two mistakes at once, the second too": {"nonsense\nhip hook 1 a b (void)", "x:2:"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse("x", test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

func TestBase(t *testing.T) {
	for name, want := range map[string]string{
		"cuMemAlloc":                 "cuMemAlloc",
		"cuMemAlloc_v2":              "cuMemAlloc",
		"cuMemAllocAsync_ptsz":       "cuMemAllocAsync",
		"cuMemsetD8_v2_ptds":         "cuMemsetD8",
		"nvmlDeviceGetMemoryInfo_v2": "nvmlDeviceGetMemoryInfo",
	} {
		if got := base(name); got != want {
			t.Errorf("base(%s) = %s, want %s", name, got, want)
		}
	}
}

func TestMissingTwins(t *testing.T) {
	symbols, err := parse("x", "cuda hook 1 cuA a (void)\ncuda hook 2 cuA_v2 a (void)\ncuda call 1 cuB - (void)")
	if err != nil {
		t.Fatal(err)
	}
	got := missingTwins(symbols, []string{"cuA", "cuA_v2", "cuA_v2_ptds", "cuA_v3", "cuAnother", "cuB_v2"})
	if want := []string{"cuA_v2_ptds", "cuA_v3"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func TestTheTableOfThisRepository(t *testing.T) {
	text, err := os.ReadFile("../../hooks.def")
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := parse("hooks.def", string(text))
	if err != nil {
		t.Fatal(err)
	}
	if list := exportList(symbols); !strings.Contains(list, "cuMemAllocAsync_ptsz\n") || strings.Contains(list, "cuCtxGetDevice") {
		t.Fatalf("exports are not the hooks: %s", list)
	}
}
