// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"

	"deviceshare/sharing"
)

// driverModels are product names as NVIDIA's drivers print them.
var driverModels = []string{
	"Tesla T4", "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB", "Tesla V100S-PCIE-32GB", "Tesla P4", "Tesla P40", "Tesla P100-PCIE-16GB", "NVIDIA T4G",
	"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100X", "NVIDIA A800-SXM4-80GB", "NVIDIA A800 80GB PCIe",
	"NVIDIA A2", "NVIDIA A10", "NVIDIA A10G", "NVIDIA A16", "NVIDIA A30", "NVIDIA A30X", "NVIDIA A40", "NVIDIA RTX A4000", "NVIDIA RTX A6000",
	"NVIDIA L2", "NVIDIA L4", "NVIDIA L20", "NVIDIA L40", "NVIDIA L40S",
	"NVIDIA H20", "NVIDIA H20-3e", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H800", "NVIDIA H800 PCIe", "NVIDIA H200", "NVIDIA H200 NVL",
	"NVIDIA GH200 480GB", "NVIDIA GB200", "NVIDIA GB300", "NVIDIA B200", "NVIDIA B300 SXM6 AC",
	"Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX 4000 Ada Generation", "NVIDIA RTX 4000 SFF Ada Generation",
	"NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4080", "NVIDIA GeForce RTX 4080 SUPER", "NVIDIA GeForce RTX 4070 Ti", "NVIDIA GeForce RTX 4070 Ti SUPER",
	"NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 5090",
	"GRID T4-16Q", "NVIDIA A10-24Q",
}

// meanings are ways of writing a name, with all models that each of them means of those that exist.
func meanings() map[string][]string {
	return map[string][]string{
		"H20":                    {"NVIDIA H20", "NVIDIA H20-3e"},
		"H200":                   {"NVIDIA H200", "NVIDIA H200 NVL"},
		"GH200":                  {"NVIDIA GH200 480GB"},
		"B200":                   {"NVIDIA B200"},
		"gb200":                  {"NVIDIA GB200"},
		"GB":                     nil,
		"A":                      nil,
		"A10":                    {"NVIDIA A10", "NVIDIA A10-24Q"},
		"A30":                    {"NVIDIA A30"},
		"a100x":                  {"NVIDIA A100X"},
		"L4":                     {"NVIDIA L4"},
		"L40":                    {"NVIDIA L40"},
		"L40S":                   {"NVIDIA L40S"},
		"NVIDIA-L40":             {"NVIDIA L40"},
		"T4":                     {"Tesla T4", "GRID T4-16Q"},
		"Tesla T4":               {"Tesla T4"},
		"NVIDIA-Tesla T4":        {"Tesla T4"},
		"NVIDIA T4":              {"Tesla T4", "GRID T4-16Q"},
		"P4":                     {"Tesla P4"},
		"A100":                   {"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"},
		"NVIDIA A100":            {"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"},
		"A100-80GB":              {"NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"},
		"A100-SXM4":              {"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"},
		"A100-SXM":               {"A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"},
		"A100-SXM4-80GB":         {"NVIDIA A100-SXM4-80GB"},
		"NVIDIA A100-SXM4-80GB":  {"NVIDIA A100-SXM4-80GB"},
		"nvidia_a100_sxm4_80gb":  {"NVIDIA A100-SXM4-80GB"},
		"A100-PCIE":              {"NVIDIA A100-PCIE-40GB", "NVIDIA A100 80GB PCIe"},
		"A100 80GB PCIe":         {"NVIDIA A100 80GB PCIe"},
		"A100-80GB-PCIe":         {"NVIDIA A100 80GB PCIe"},
		"H100":                   {"NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H100 NVL"},
		"H100 80GB HBM3":         {"NVIDIA H100 80GB HBM3"},
		"H100-80GB-HBM3":         {"NVIDIA H100 80GB HBM3"},
		"H100 NVL":               {"NVIDIA H100 NVL"},
		"H800":                   {"NVIDIA H800", "NVIDIA H800 PCIe"},
		"V100":                   {"Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB"},
		"V100-32GB":              {"Tesla V100-PCIE-32GB"},
		"RTX 4090":               {"NVIDIA GeForce RTX 4090"},
		"rtx-4090":               {"NVIDIA GeForce RTX 4090"},
		"RTX4090":                {"NVIDIA GeForce RTX 4090"},
		"4090":                   {"NVIDIA GeForce RTX 4090"},
		"GeForce 4090":           {"NVIDIA GeForce RTX 4090"},
		"RTX 4090 D":             {"NVIDIA GeForce RTX 4090 D"},
		"RTX4090D":               {"NVIDIA GeForce RTX 4090 D"},
		"4090D":                  {"NVIDIA GeForce RTX 4090 D"},
		"4090 laptop":            {"NVIDIA GeForce RTX 4090 Laptop GPU"},
		"RTX 3090":               {"NVIDIA GeForce RTX 3090"},
		"RTX 4080":               {"NVIDIA GeForce RTX 4080"},
		"RTX 4080 Super":         {"NVIDIA GeForce RTX 4080 SUPER"},
		"RTX 4070 Ti":            {"NVIDIA GeForce RTX 4070 Ti"},
		"RTX 4070 Super":         nil,
		"RTX 4070 Ti Super":      {"NVIDIA GeForce RTX 4070 Ti SUPER"},
		"RTX 6000":               {"Quadro RTX 6000"},
		"RTX 6000 Ada":           {"NVIDIA RTX 6000 Ada Generation"},
		"RTX PRO 6000":           {"NVIDIA RTX PRO 6000 Blackwell Server Edition"},
		"RTX 4000 Ada":           {"NVIDIA RTX 4000 Ada Generation"},
		"RTX 4000 SFF Ada":       {"NVIDIA RTX 4000 SFF Ada Generation"},
		"RTX A6000":              {"NVIDIA RTX A6000"},
		"A6000":                  {"NVIDIA RTX A6000"},
		"Tesla":                  {"Tesla T4", "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-32GB", "Tesla V100S-PCIE-32GB", "Tesla P4", "Tesla P40", "Tesla P100-PCIE-16GB"},
		"NVIDIA":                 driverModels,
		"NVIDIA-NVIDIA":          driverModels,
		"":                       nil,
		" - ":                    nil,
		"A100 H100":              nil,
		"SXM4-A100":              nil, // words in another order
		"A100-SXM4-80GB-A100":    nil,
		"A100-SXM4-80GB is mine": nil,
	}
}

func TestANameMeansTheModelsThatAPersonMeans(t *testing.T) {
	for name, want := range meanings() {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, model := range driverModels {
				if sharing.IsModel(name, model) {
					got = append(got, model)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("means %q\nwant %q", got, want)
			}
		})
	}
}

func TestEachModelIsMeantByItsOwnNameInEveryWriting(t *testing.T) {
	for _, model := range driverModels {
		for _, name := range []string{model, strings.ToUpper(model), strings.ToLower(model), strings.ReplaceAll(model, " ", "-"),
			strings.ReplaceAll(model, "-", "_"), "NVIDIA-" + model, "  " + model + "\t", sharing.ModelWords(model), strings.TrimPrefix(model, "NVIDIA ")} {
			for _, other := range driverModels {
				same := strings.TrimPrefix(model, "NVIDIA ") == strings.TrimPrefix(other, "NVIDIA ") || model == "NVIDIA H20" && other == "NVIDIA H20-3e" ||
					model == "NVIDIA H200" && other == "NVIDIA H200 NVL" || model == "NVIDIA H800" && other == "NVIDIA H800 PCIe" || model == "NVIDIA A10" && other == "NVIDIA A10-24Q"
				if got := sharing.IsModel(name, other); got != same {
					t.Errorf("%q means %q: %v, want %v", name, other, got, same)
				}
			}
		}
	}
}

// The oracle splits by a table and tries every subset of the model's words.
func TestModelNamesMatchAsAnOracleSays(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 10))
	vocabulary := []string{"NVIDIA", "A100", "A10", "L40", "L40S", "SXM", "SXM4", "SXM2", "80GB", "RTX", "4090", "D", "Ti", "super", "PRO", "6000", "Ada", "x", "PCIe", "4090D"}
	text := func(most int) string {
		var b strings.Builder
		for range r.IntN(most + 1) {
			b.WriteString(vocabulary[r.IntN(len(vocabulary))])
			b.WriteString([]string{" ", "-", "_", "", " - "}[r.IntN(5)])
		}
		return b.String()
	}
	matched := 0
	for range 200_000 {
		name, model := text(4), text(6)
		want := oracleMeans(name, model)
		if want {
			matched++
		}
		if got := sharing.IsModel(name, model); got != want {
			t.Fatalf("%q means %q: %v, want %v", name, model, got, want)
		}
	}
	if matched < 5000 {
		t.Errorf("only %d names mean a model: the test tries little", matched)
	}
}

func oracleWords(s string) []string {
	return strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return ' '
	}, s))
}

func oracleMeans(name, model string) bool {
	words, all := oracleWords(name), oracleWords(model)
	if len(words) == 0 {
		return false
	}
	for len(words) > 0 && words[0] == "nvidia" {
		words = words[1:]
	}
	if len(words) == 0 {
		return true
	}
	another := " d ti super pro ada sff laptop "
	is := func(word, part string) bool {
		if word == part {
			return true
		}
		rest, ok := strings.CutPrefix(part, word)
		return ok && len(word) >= 3 && strings.Trim(word, "abcdefghijklmnopqrstuvwxyz") == "" && strings.Trim(rest, "0123456789") == ""
	}
	// try returns whether the words from w on can be laid on the model's words from at on.
	var try func(w, at int, started bool) bool
	try = func(w, at int, started bool) bool {
		if w == len(words) {
			last := all[at-1]
			return at == len(all) || !strings.Contains(another, " "+all[at]+" ") ||
				!strings.ContainsAny(last, "0123456789") && !strings.Contains(another, " "+last+" ")
		}
		for from := at; from < len(all); from++ {
			for to := from + 1; to <= len(all); to++ {
				head := strings.Join(all[from:to-1], "")
				if rest, ok := strings.CutPrefix(words[w], head); ok && is(rest, all[to-1]) && rest != "" && try(w+1, to, true) {
					return true
				}
			}
			if started && strings.Contains(another, " "+all[from]+" ") {
				return false
			}
		}
		return false
	}
	return try(0, 0, false)
}

func TestMatchingAModelAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() {
		sharing.IsModel("A100-80GB", "NVIDIA A100-SXM4-80GB")
		sharing.IsModel("nvidia rtx 4090 d", "NVIDIA GeForce RTX 4090 D")
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// Names are people's and models are nodes': neither may cost a scheduler more than reading them.
func TestHostileModelNamesAreReadInBoundedTime(t *testing.T) {
	long := strings.Repeat("a ", 100_000)
	for _, name := range []string{long, long + "b", strings.Repeat("a", 100_000), strings.Repeat("\xff", 1000), "é" + long} {
		for _, model := range []string{long, strings.Repeat("a", 100_000), "\xff\xfe", "", strings.Repeat("a a1 ", 1000)} {
			_ = sharing.IsModel(name, model)
		}
	}
}

func FuzzIsModel(f *testing.F) {
	f.Add("A100-80GB", "NVIDIA A100-SXM4-80GB")
	f.Add("ſxm", "SXM4")
	f.Fuzz(func(t *testing.T, name, model string) {
		got := sharing.IsModel(name, model)
		if separated := sharing.IsModel("-"+name+" ", " "+model+"_"); separated != got {
			t.Errorf("%q means %q: %v, with separators around them %v", name, model, got, separated)
		}
		if strings.Count(sharing.ModelWords(name), " ") < 60 && sharing.ModelWords(name) == "" && got {
			t.Errorf("%q has no words and means %q", name, model)
		}
	})
}

func BenchmarkIsModel(b *testing.B) {
	for _, c := range [][2]string{{"A100", "NVIDIA A100-SXM4-80GB"}, {"H100", "NVIDIA A100-SXM4-80GB"}} {
		b.Run(fmt.Sprint(c), func(b *testing.B) {
			for b.Loop() {
				sharing.IsModel(c[0], c[1])
			}
		})
	}
}
