// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"testing"
)

func TestAProgramThatCannotBeStartedHasAShellsStatus(t *testing.T) {
	for path, expected := range map[string]int{"no-such-program": 127, "/nowhere/x": 127, "/": 126} {
		if found := startStatus(exec.Command(path).Run()); found != expected {
			t.Errorf("%s: %d", path, found)
		}
	}
}

func TestARanksNumberComesFromItsMPI(t *testing.T) {
	t.Setenv("PMIX_RANK", "x")
	t.Setenv("PMI_RANK", "5")
	for expected, names := range map[int][]string{
		5:  {"GPUPACK_NOT_SET", "PMIX_RANK", "PMI_RANK"},
		-1: {"GPUPACK_NOT_SET", "PMIX_RANK"},
	} {
		if found := number(names...); found != expected {
			t.Errorf("%q: %d", names, found)
		}
	}
}
