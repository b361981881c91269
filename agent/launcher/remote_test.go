// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestHostAndCommandFollowTheOptionsOfSsh(t *testing.T) {
	for _, given := range []struct {
		arguments     []string
		host, command string
	}{
		{[]string{"10.0.0.1", "orted", "-mca", "x"}, "10.0.0.1", "orted -mca x"},
		{[]string{"-x", "10.0.0.1", "hydra_pmi_proxy"}, "10.0.0.1", "hydra_pmi_proxy"},
		{[]string{"-p", "22", "-oBatchMode=yes", "-q", "root@fd00::1", "true"}, "fd00::1", "true"},
		{[]string{"-o", "BatchMode=yes", "host", "echo", "-n"}, "host", "echo -n"},
	} {
		host, command, err := parseArguments(given.arguments)
		if host != given.host || command != given.command || err != nil {
			t.Errorf("%q: host %q, command %q, %v", given.arguments, host, command, err)
		}
	}
}

func TestHostAndCommandAreRequired(t *testing.T) {
	for _, arguments := range [][]string{nil, {"host"}, {"-x"}, {"-p"}, {"-p", "22"}, {"-p", "22", "host"}} {
		if host, command, err := parseArguments(arguments); err == nil {
			t.Errorf("%q: host %q, command %q", arguments, host, command)
		}
	}
}
