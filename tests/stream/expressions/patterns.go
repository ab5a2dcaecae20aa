// Writes patterns.json: what Go's regexp says of patterns and texts. Run it in this folder: go run patterns.go
package main

import (
	"encoding/json"
	"math/rand"
	"os"
	"regexp"
	"strings"
)

var chosen = []string{
	"^a.b$", "(?m)^a$", `(?P<year>\d{4})-[$]\$`, "(?i:x|y)+?", "^(a|b)*$", "^(.*?,){11}P", "(?i)k", "(?i)ſ", `\bé`, "(?s)a.b",
	"a{", "a{,3}", "{+", "a{{2}", "[a[b]]", "[a&&b]", "[[:alpha:]]", "[[:^word:]]$", "(?=a)", "(?<!a)", `(a)\1`, `\Z`, `\pL`, `\p{Greek}`,
	`\p{Foo}`, "a**", "(", "*", "[a", "[]a]", "[^]a]", `\Qa+(\E+`, `\Q(`, `\C`, `[\C]`, `\x{10FFFF}`, `\x{110000}`, `\é`, "a{1001}",
	"(a{1000}){2}", `\pL{1000}`, "(?<n>a)", "(?P<n>a)(?P<n>b)", "(?x)a", "(?#a)", "(?U)a+", `.\A`, `(a|$)\b`, "", "|", "(|a)*", `\`,
	strings.Repeat("(", 999) + strings.Repeat(")", 999), strings.Repeat("(", 1000) + strings.Repeat(")", 1000), `[\]()]{2}`, `\(\{`,
}

var parts = []string{
	"a", "b", "é", "日", ".", "*", "+", "?", "|", "(", ")", "[", "]", "^", "$", "-", "&", "{2}", "{1,}", "{0,3}", "{,2}", "{", "}", `\d`, `\.`,
	"(?:", "(?P<n>", "(?i)", "(?s)", "(?m)", "(?-i)", `\pL`, `\P{Lu}`, `\p{Han}`, "[[:alpha:]]", "[^a]", "[a-z]", `\Q`, `\E`, `\A`, `\z`, `\b`,
	`\B`, `\x41`, `\s`, `\w`, `\n`, "??", "*?", "+?", "\n", " ", `\-`, `\8`, `\1`, `\v`, `\h`,
}

var texts = []string{
	"", "a", "b", "ab", "aab", "é", "éa", "K", "k", "\u212a", "ſ", "s", "\n", "a\nb", "A", "1", "_", "x.y", "aA1é\n", "aaaa", "a{2}", "{", "日本",
	"b 日", "\x0b", "2024-$",
}

func main() {
	random := rand.New(rand.NewSource(1))
	found := map[string]string{}
	add := func(pattern string, wanted bool) bool {
		compiled, err := regexp.Compile(pattern)
		if (err == nil) != wanted || found[pattern] != "" {
			return false
		}
		found[pattern] = "refused"
		if err == nil {
			said := ""
			for _, text := range texts {
				said += map[bool]string{true: "1", false: "0"}[compiled.MatchString(text)]
			}
			found[pattern] = said
		}
		return true
	}
	for _, pattern := range chosen {
		if !add(pattern, true) {
			add(pattern, false)
		}
	}
	for count := 0; count < 500; {
		var made []string
		for i := random.Intn(7); i >= 0; i-- {
			made = append(made, parts[random.Intn(len(parts))])
		}
		if add(strings.Join(made, ""), count < 400) {
			count++
		}
	}
	written, _ := json.MarshalIndent(map[string]any{"texts": texts, "patterns": found}, "", " ")
	if err := os.WriteFile("patterns.json", append(written, '\n'), 0o644); err != nil {
		panic(err)
	}
}
