// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestTheLastLineWithTextIsKeptWhereverTheWritesEnd(t *testing.T) {
	long := strings.Repeat("x", longestLine)
	for expected, written := range map[string][]string{
		"":          {"", "\n", "  \n\n"},
		"second":    {"first\nsec", "ond\n", "\n", " \t\n"},
		"cut off":   {"first\n", "cut off"},
		"a b":       {"old\r\n", "a b", "\r\n"},
		long:        {"old\n" + long, long + "\n"},
		"new":       {long + long + "\n", "new\n"},
		"not ? all": {"not \xff all\n"},
	} {
		captured := &lastLine{ended: make(chan struct{})}
		for _, each := range written {
			captured.add([]byte(each))
		}
		close(captured.ended)
		if found := captured.line(); found != expected {
			t.Errorf("of %q it is %q", written, found)
		}
	}
}
