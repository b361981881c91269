// SPDX-License-Identifier: Apache-2.0

// Package command holds what several programs of this module start.
package command

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// Kubectl runs kubectl and returns its exit status. It prints errors as kubectl does, without the daemons' usage and
// logging.
func Kubectl() int {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	return 0
}
