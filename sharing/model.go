// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// IsModel reports whether a device of a model is meant by a name that a person wrote. It is the
// one rule for annotations, rules of nodes, geometries and limits of queues: the words of the name
// are in the model's name in the same order, ignoring case, and words may be left out.
//
//	A100, NVIDIA-A100, A100-80GB  are  NVIDIA A100-SXM4-80GB
//	A10, A100X                    are not
//
// A word is a run of letters and digits, so what separates words does not matter. Words may be
// written together (RTX4090). A word of three or more letters also means itself with a number
// (SXM is SXM4). Words such as Ti make another model and cannot be left out: RTX 4090 is no RTX
// 4090 D. The maker's name in front is not a word, since all devices are of one maker; alone it
// means all models. A name without words means none. IsModel allocates nothing.
func IsModel(name, model string) bool {
	words, all := splitModel(name), splitModel(model)
	first := 0
	for first < words.n && strings.EqualFold(words.wordAt(name, first), maker) {
		first++
	}
	if first == words.n || words.more {
		return words.n > 0 && !words.more
	}
	// Invariant: bit i of ends is set if the words before w may end with word i of the model.
	var ends uint64
	for w := first; w < words.n; w++ {
		var next uint64
		word := words.wordAt(name, w)
		for i := range all.n {
			if w == first || canFollow(model, &all, ends, i) {
				next |= runsFrom(word, model, &all, i)
			}
		}
		if ends = next; ends == 0 {
			return false
		}
	}
	return isWhole(model, &all, ends)
}

// ModelWords returns the words of a model's name in lower case, one space between them: equal for
// names that IsModel cannot tell apart by their separators and case. It is empty for a name that
// means no model.
func ModelWords(name string) string {
	return strings.Join(strings.FieldsFunc(strings.ToLower(name), func(r rune) bool { return !isWordRune(r) }), " ")
}

// maker begins the names of the models of recent drivers, and the device types of the legacy
// annotation.
const maker = "nvidia"

// mostModelWords is far beyond the names of models, which the driver limits to 96 bytes.
const mostModelWords = 64

// modelWords are the places of the words in a text, and whether there are more than fit.
type modelWords struct {
	n          int
	more       bool
	begin, end [mostModelWords]int32
}

func (m *modelWords) wordAt(text string, i int) string { return text[m.begin[i]:m.end[i]] }

func splitModel(text string) modelWords {
	var m modelWords
	for i, inWord := 0, false; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch word := isWordRune(r); {
		case word && !inWord:
			if m.n == mostModelWords {
				m.more = true
				return m
			}
			m.begin[m.n] = int32(i)
			m.n++
			inWord = true
		case !word:
			inWord = false
		}
		i += size
		if inWord {
			m.end[m.n-1] = int32(i)
		}
	}
	return m
}

func isWordRune(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9' || 'a' <= r|' ' && r|' ' <= 'z'
	}
	return unicode.IsLetter(r) || unicode.IsDigit(r)
}

// canFollow reports whether word i of a model may be the next one after one of the ends: no word
// in between makes another model.
func canFollow(model string, all *modelWords, ends uint64, i int) bool {
	for i--; i >= 0; i-- {
		if ends&(1<<i) != 0 {
			return true
		}
		if makesAnotherModel(all.wordAt(model, i)) {
			return false
		}
	}
	return false
}

// runsFrom returns where runs of words of a model end that begin at word i and are, written
// together, one word of a name.
func runsFrom(word, model string, all *modelWords, i int) uint64 {
	for ; i < all.n; i++ {
		part := all.wordAt(model, i)
		if isWord(word, part) {
			return 1 << i
		}
		if len(part) >= len(word) || !strings.EqualFold(word[:len(part)], part) {
			return 0
		}
		word = word[len(part):]
	}
	return 0
}

// isWord reports whether a word of a name means a word of a model.
func isWord(word, part string) bool {
	const fewest = 3 // GB is not GB200, and A is not A100
	if strings.EqualFold(word, part) {
		return true
	}
	return len(word) >= fewest && len(part) > len(word) && strings.EqualFold(word, part[:len(word)]) &&
		!strings.ContainsFunc(word, unicode.IsDigit) && strings.Trim(part[len(word):], "0123456789") == ""
}

// isWhole reports whether at one of the ends the model's name is not continued by a word that
// makes it another model. Only what names a model can be continued so: a series (GeForce RTX) has
// all of its models.
func isWhole(model string, all *modelWords, ends uint64) bool {
	for i := range all.n {
		if ends&(1<<i) == 0 {
			continue
		}
		last := all.wordAt(model, i)
		if i+1 == all.n || !makesAnotherModel(all.wordAt(model, i+1)) ||
			!strings.ContainsFunc(last, unicode.IsDigit) && !makesAnotherModel(last) {
			return true
		}
	}
	return false
}

// makesAnotherModel reports whether a word is what NVIDIA tells models of one number apart by.
func makesAnotherModel(word string) bool {
	for _, v := range [...]string{"d", "ti", "super", "pro", "ada", "sff", "laptop"} {
		if strings.EqualFold(word, v) {
			return true
		}
	}
	return false
}
