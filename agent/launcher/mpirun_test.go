// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stubMpirun starts ranks as Open MPI's does: those of the first host by itself, those of others by
// the configured program in place of ssh. When one fails it ends the others.
func stubMpirun(arguments []string) int {
	if arguments[0] == "--version" {
		fmt.Println("mpirun (Open MPI) 4.1.4")
		return 0
	}
	options := flag.NewFlagSet("mpirun", flag.ExitOnError)
	hosts := options.String("hostfile", "", "")
	count := options.Int("n", 0, "")
	options.String("map-by", "", "")
	options.Bool("allow-run-as-root", false, "")
	options.Parse(arguments)
	content, err := os.ReadFile(*hosts)
	if err != nil {
		panic(err)
	}
	var ranks []*exec.Cmd
	ended := make(chan error, *count)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	for worker, line := range lines {
		var slots int
		address, slotText, _ := strings.Cut(line, " ")
		fmt.Sscanf(slotText, "slots=%d", &slots)
		for local := 0; local < slots; local++ {
			variables := []string{
				fmt.Sprintf("OMPI_COMM_WORLD_LOCAL_RANK=%d", local),
				fmt.Sprintf("OMPI_COMM_WORLD_RANK=%d", len(ranks)),
				fmt.Sprintf("OMPI_COMM_WORLD_SIZE=%d", *count),
			}
			rank := stubRank(worker, address, variables, options.Args())
			if err := rank.Start(); err != nil {
				panic(err)
			}
			go func() { ended <- rank.Wait() }()
			ranks = append(ranks, rank)
		}
	}
	return stubWait(ranks, ended)
}

func stubRank(worker int, address string, variables, command []string) *exec.Cmd {
	var rank *exec.Cmd
	if worker == 0 {
		rank = exec.Command(command[0], command[1:]...)
		rank.Env = append(os.Environ(), variables...)
	} else {
		quoted := append([]string{address, "env"}, variables...)
		for _, each := range command {
			quoted = append(quoted, "'"+strings.ReplaceAll(each, "'", `'\''`)+"'")
		}
		rank = exec.Command(os.Getenv("OMPI_MCA_plm_rsh_agent"), quoted...)
	}
	rank.Stdout, rank.Stderr = os.Stdout, os.Stderr
	return rank
}

// stubWait also ends with its container: its parent is the container's first process.
func stubWait(ranks []*exec.Cmd, ended <-chan error) int {
	parent, status := os.Getppid(), 0
	look := time.NewTicker(50 * time.Millisecond)
	for left := len(ranks); left > 0; {
		var signal syscall.Signal
		select {
		case err := <-ended:
			left--
			var failed *exec.ExitError
			if status == 0 && errors.As(err, &failed) {
				status, signal = failed.ExitCode(), syscall.SIGTERM
			}
		case <-look.C:
			if os.Getppid() != parent {
				signal = syscall.SIGKILL
			}
		}
		for _, rank := range ranks {
			if signal != 0 {
				rank.Process.Signal(signal)
			}
		}
	}
	return status
}
