// SPDX-License-Identifier: Apache-2.0

// Command kubectl is kubectl alone. It starts in half the processor time that the binary of all components takes, and
// the tests start it thousands of times.
package main

import (
	"os"

	"gpupack.dev/devcluster/command"
)

func main() {
	os.Exit(command.Kubectl())
}
